"""Removal of a table's variables, as a shell has them from a `tuccl.env`, for stock NCCL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.runtime import PLUGIN_NAME
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE, without_executor

PROFILE_VARIABLE = "TUCCL_PROFILE"
"""Variable with the names of the variables that a table's process profile has set."""
DIRECTORY_VARIABLE = "TUCCL_DIR"
"""Variable with the directory of shipped files that were moved."""
CRC_VARIABLE = "TUCCL_BUNDLE_CRC"
"""Variable with the checksum that every rank's bundle must have."""
ENVIRONMENT_VARIABLE = "TUCCL_ENV"
"""Variable with the file that ranks may source for the same table."""
_OF_A_TABLE = (
    BUNDLE_VARIABLE,
    CRC_VARIABLE,
    DIRECTORY_VARIABLE,
    ENVIRONMENT_VARIABLE,
    "TUCCL_NCCL",
    PROFILE_VARIABLE,
)


def without_table(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of a `tuccl.env`.

    Variables that the user set stay: where they overrule a table, the bench is refused like a
    search.
    """
    others = without_executor(environment.get(PRELOAD_VARIABLE, ""))
    left_out = {*environment.get(PROFILE_VARIABLE, "").split(), *_OF_A_TABLE, PRELOAD_VARIABLE}
    if Path(environment.get(PLUGIN_VARIABLE, "")).name == PLUGIN_NAME:
        left_out.add(PLUGIN_VARIABLE)
    kept = {name: value for name, value in environment.items() if name not in left_out}
    return kept | ({PRELOAD_VARIABLE: others} if others else {})
