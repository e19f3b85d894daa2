"""The compiled libraries of the runtime, and where they were installed.

`libnccl-tuner-tuccl.so` (C11) is compiled by the package build. NCCL loads it by path from
NCCL_TUNER_PLUGIN; it answers from the bundle that TUCCL_BUNDLE names. See docs/runtime.md.
`libtuccl-measure.so` (C11) is what a worker of the `nccl` backend runs collectives with. See
docs/nccl-backend.md. `libtuccl-executor.so` (C++17 and CUDA, where a CUDA compiler was found) runs
schedules on NCCL's communicators. See docs/executor.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

PLUGIN_NAME = "libnccl-tuner-tuccl.so"
MEASURE_LIBRARY_NAME = "libtuccl-measure.so"
EXECUTOR_NAME = "libtuccl-executor.so"


class PluginMissingError(Exception):
    """This installation has no compiled plugin, or no compiled library."""


def plugin_path() -> Path:
    """The compiled plugin of this installation.

    Raises:
        PluginMissingError: The package runs from a source tree that was never built.
    """
    return _compiled(PLUGIN_NAME)


def measure_library_path() -> Path:
    """The compiled library that times NCCL, of this installation.

    Raises:
        PluginMissingError: The package runs from a source tree that was never built.
    """
    return _compiled(MEASURE_LIBRARY_NAME)


def executor_path() -> Path:
    """The compiled executor of this installation, for `LD_PRELOAD`.

    Raises:
        PluginMissingError: It was not built: no CUDA compiler was found, or nothing was.
    """
    return _compiled(EXECUTOR_NAME, "a C++ and a CUDA compiler")


def _compiled(name: str, needed: str = "a C compiler") -> Path:
    # An editable install leaves the sources where they are and compiles into site-packages.
    installed = (Path(entry) / "tuccl" / "runtime" for entry in sys.path)
    for folder in (*map(Path, __path__), *installed):
        candidate = folder / name
        if candidate.is_file():
            return candidate
    raise PluginMissingError(
        f"{Path(__file__).parent} has no {name}; `pip install .` compiles it, which needs {needed}"
    )
