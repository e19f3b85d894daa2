"""What stock NCCL runs without: the variables that a shell has from a `tuccl.env`."""

from __future__ import annotations

from collections.abc import Mapping
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


def without_table(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what a `tuccl.env` has set there.

    What was set by hand stays: where it overrules a table, the bench is refused as a search is.
    """
    others = without_executor(environment.get(PRELOAD_VARIABLE, ""))
    left_out = {*environment.get(PROFILE_VARIABLE, "").split(), *_OF_A_TABLE, PRELOAD_VARIABLE}
    if Path(environment.get(PLUGIN_VARIABLE, "")).name == PLUGIN_NAME:
        left_out.add(PLUGIN_VARIABLE)
    kept = {name: value for name, value in environment.items() if name not in left_out}
    return kept | ({PRELOAD_VARIABLE: others} if others else {})


def without_executor(preloaded: str) -> str:
    """The value of LD_PRELOAD with every library but the executor."""
    paths = preloaded.replace(":", " ").split()
    return " ".join(path for path in paths if Path(path).name != EXECUTOR_NAME)
