"""`JobView`: a job that would start here, and the variables that its NCCL would see."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundles.bundle import Bundle, load_bundle
from tuccl.errors import TableError, UsageError
from tuccl.measuring.engines.nccl_environment import seen_variables
from tuccl.measuring.engines.nccl_library import NcclLibrary
from tuccl.shipping.shipped_directory import ENVIRONMENT_NAME

_SOURCE = '. "$1" >/dev/null && env -0'
_LIMIT_S = 30.0


@dataclass(frozen=True)
class JobView:
    """A job that would start here."""

    environment: Mapping[str, str]
    """The environment that it starts with."""
    seen: Mapping[str, tuple[str, str]]
    """Value and origin of each variable that NCCL sees: NCCL's configuration files count."""
    bundle: Bundle | None
    """The table; None where there is none, or none that can be read."""
    problem: str
    """Why there is no table."""
    nccl: NcclLibrary | None = None
    """The NCCL that the job would load, where that is known."""

    def value(self, name: str) -> str:
        """Return a variable's value; empty where it is not set."""
        return self.seen.get(name, ("", ""))[0]

    def place(self, name: str) -> str:
        """Return where a variable is set."""
        return self.seen.get(name, ("", ""))[1]

    @property
    def bundle_path(self) -> Path | None:
        """The path that TUCCL_BUNDLE names."""
        named = self.value("TUCCL_BUNDLE")
        return Path(named) if named else None


def job_environment(directory: Path | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job that starts here.

    Args:
        directory: Shipped directory whose `tuccl.env` the job sources; None: none.
        environment: Environment of this process.

    Raises:
        UsageError: `tuccl.env` cannot be sourced.
    """
    if directory is None:
        return dict(environment)
    script = directory / ENVIRONMENT_NAME
    command = ["/bin/sh", "-c", _SOURCE, "sh", str(script)]
    given = {**environment, "TUCCL_DIR": str(directory)}
    try:
        done = subprocess.run(  # noqa: S603 - what every job sources
            command, env=given, capture_output=True, check=True, timeout=_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(
            f"{script} cannot be sourced ({error}); `tuccl ship` there again"
        ) from None
    pairs = (pair.split("=", 1) for pair in os.fsdecode(done.stdout).split("\0") if "=" in pair)
    return {name: value for name, value in pairs if name != "_"}


def view_job(environment: Mapping[str, str]) -> JobView:
    """Return the job that would start with an environment, its NCCL not yet looked for."""
    seen = seen_variables(environment)
    named = seen.get("TUCCL_BUNDLE", ("", ""))[0]
    if not named:
        return JobView(environment, seen, None, "TUCCL_BUNDLE names no table")
    try:
        return JobView(environment, seen, load_bundle(Path(named)), "")
    except OSError as error:
        return JobView(environment, seen, None, f"cannot read {named}: {error.strerror}")
    except TableError as error:
        return JobView(environment, seen, None, str(error))
