"""`tuccl.env` as a job has it: the environment after a shell has sourced it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tuccl.errors import UsageError

ENVIRONMENT_NAME = "tuccl.env"
_SOURCE = '. "$1" >/dev/null && env -0'
_LIMIT_S = 30.0


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
