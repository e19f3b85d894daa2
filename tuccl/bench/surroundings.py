"""What stock NCCL runs without: the variables that a shell has from a `tuccl.env`."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from tuccl.engines.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE
from tuccl.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME

PROFILE_VARIABLE = "TUCCL_PROFILE"
"""Holds the names of the variables that a table's process profile has set."""
DIRECTORY_VARIABLE = "TUCCL_DIR"
"""Where shipped files lie, if they were moved."""
_OF_A_TABLE = (
    BUNDLE_VARIABLE,
    "TUCCL_BUNDLE_CRC",
    DIRECTORY_VARIABLE,
    "TUCCL_ENV",
    "TUCCL_NCCL",
    PROFILE_VARIABLE,
)


def leave_table(environment: MutableMapping[str, str] = os.environ) -> None:
    """Take out of an environment what a `tuccl.env` has set there.

    Worker processes inherit the rest. What was set by hand stays: where it overrules a table, the
    bench is refused as a search is.
    """
    for name in (*environment.get(PROFILE_VARIABLE, "").split(), *_OF_A_TABLE):
        environment.pop(name, None)
    if Path(environment.get(PLUGIN_VARIABLE, "")).name == PLUGIN_NAME:
        del environment[PLUGIN_VARIABLE]
    preloaded = environment.pop(PRELOAD_VARIABLE, "")
    if others := without_executor(preloaded):
        environment[PRELOAD_VARIABLE] = others


def without_executor(preloaded: str) -> str:
    """The value of LD_PRELOAD with every library but the executor."""
    paths = preloaded.replace(":", " ").split()
    return " ".join(path for path in paths if Path(path).name != EXECUTOR_NAME)
