"""Variables of jobs with and without a table, as a shell has them from a `tuccl.env`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lookup_tables.bundles.bundle import load_bundle
from tuccl.errors import UsageError
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.runtime import PLUGIN_NAME
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE, without_executor
from tuccl.shipping.sourcing import ENVIRONMENT_NAME, job_environment

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


def table_variables(directory: Path, *, with_executor: bool = True) -> dict[str, str]:
    """Return the variables of jobs with the table in a directory, which may have been moved.

    Args:
        directory: The directory, with its `tuccl.env`.
        with_executor: Load the executor where `tuccl.env` does.

    Raises:
        UsageError: A file is missing, or `tuccl.env` is not one of `tuccl ship`.
    """
    variables = _sourced(directory)
    if not with_executor:
        variables[PRELOAD_VARIABLE] = without_executor(variables.get(PRELOAD_VARIABLE, ""))
        bundle = Path(variables[BUNDLE_VARIABLE])
        if bundle.is_file():
            variables |= load_bundle(bundle).process_profile(executor=False)
    libraries = variables.get(PRELOAD_VARIABLE, "").split()
    for path in (variables[PLUGIN_VARIABLE], variables[BUNDLE_VARIABLE], *libraries):
        if not Path(path).is_file():
            raise UsageError(
                f"{path} is missing, which {directory / ENVIRONMENT_NAME} names; `tuccl ship` "
                "there again, or name another directory"
            )
    # A job's own libraries are preloaded behind the executor.
    libraries += without_executor(os.environ.get(PRELOAD_VARIABLE, "")).split()
    variables[PRELOAD_VARIABLE] = " ".join(libraries)
    return variables


def _sourced(directory: Path) -> dict[str, str]:
    script = directory / ENVIRONMENT_NAME
    if not script.is_file():
        raise UsageError(f"{script} is missing: name a directory of `tuccl ship`, or a workspace")
    sourced = job_environment(directory, {"PATH": os.environ.get("PATH", os.defpath)})
    wanted = ("NCCL_", "TUCCL_", PRELOAD_VARIABLE)
    found = {name: value for name, value in sourced.items() if name.startswith(wanted)}
    if not found.get(PLUGIN_VARIABLE) or not found.get(BUNDLE_VARIABLE):
        raise UsageError(
            f"{script} names no plugin and no bundle, so it is not of `tuccl ship`; ship there "
            "again, or name another directory"
        )
    kept_apart = (DIRECTORY_VARIABLE, PROFILE_VARIABLE)
    return {name: value for name, value in found.items() if name not in kept_apart}


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
