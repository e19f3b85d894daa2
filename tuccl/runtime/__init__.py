"""The NCCL tuner plugin (C11) and where it was installed.

`libnccl-tuner-tuccl.so` is compiled by the package build. NCCL loads it by path from
NCCL_TUNER_PLUGIN; it answers from the bundle that TUCCL_BUNDLE names. See docs/runtime.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

PLUGIN_NAME = "libnccl-tuner-tuccl.so"


class PluginMissingError(Exception):
    """This installation has no compiled plugin."""


def plugin_path() -> Path:
    """The compiled plugin of this installation.

    Raises:
        PluginMissingError: The package runs from a source tree that was never built.
    """
    # An editable install leaves the sources where they are and compiles into site-packages.
    installed = (Path(entry) / "tuccl" / "runtime" for entry in sys.path)
    for folder in (*map(Path, __path__), *installed):
        candidate = folder / PLUGIN_NAME
        if candidate.is_file():
            return candidate
    raise PluginMissingError(
        f"{Path(__file__).parent} has no {PLUGIN_NAME}; `pip install .` compiles it, which needs a "
        "C compiler"
    )
