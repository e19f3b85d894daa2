"""The NCCL tuner plugin, the library that times NCCL (both C11), and where they were installed.

`libnccl-tuner-tuccl.so` is compiled by the package build. NCCL loads it by path from
NCCL_TUNER_PLUGIN; it answers from the bundle that TUCCL_BUNDLE names. See docs/runtime.md.
`libtuccl-measure.so` is what a worker of the `nccl` backend runs collectives with. See
docs/nccl-backend.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

PLUGIN_NAME = "libnccl-tuner-tuccl.so"
MEASURE_LIBRARY_NAME = "libtuccl-measure.so"


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


def _compiled(name: str) -> Path:
    # An editable install leaves the sources where they are and compiles into site-packages.
    installed = (Path(entry) / "tuccl" / "runtime" for entry in sys.path)
    for folder in (*map(Path, __path__), *installed):
        candidate = folder / name
        if candidate.is_file():
            return candidate
    raise PluginMissingError(
        f"{Path(__file__).parent} has no {name}; `pip install .` compiles it, which needs a "
        "C compiler"
    )
