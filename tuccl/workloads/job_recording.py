"""A job's environment for a recording, and the directory that its processes write to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuccl.crew.started_rank import ranks_of_launcher
from tuccl.errors import UsageError
from tuccl.runtime import profiler_path
from tuccl.runtime.executor_library import PRELOAD_VARIABLE, without_executor
from tuccl.workspace.atomic_file import cannot_write

PROFILER_VARIABLE = "NCCL_PROFILER_PLUGIN"
RECORD_VARIABLE = "TUCCL_RECORD"
_LONGEST_PATH_BYTES = 254
"""Length of a plugin's path beyond which NCCL cuts it."""


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """The environment of a recorded job."""

    variables: Mapping[str, str]
    lost_executor: bool
    """Whether the job would have had TuCCL's executor, whose calls NCCL does not tell of."""


def recording_variables(directory: Path) -> dict[str, str]:
    """Return the variables that have a job's processes record.

    Args:
        directory: Where they write: an absolute path that they all see.

    Raises:
        HostError: This installation has no profiler plugin.
        UsageError: NCCL would cut the plugin's path.
    """
    plugin = str(profiler_path())
    if len(os.fsencode(plugin)) > _LONGEST_PATH_BYTES:
        raise UsageError(
            f"{plugin} is longer than the {_LONGEST_PATH_BYTES} bytes that NCCL takes: install "
            "TuCCL at a shorter path"
        )
    return {PROFILER_VARIABLE: plugin, RECORD_VARIABLE: str(directory)}


def job_environment(own: Mapping[str, str], directory: Path) -> JobEnvironment:
    """Return the environment of a job that records.

    Args:
        own: The environment that it would have.
        directory: As for `recording_variables`.

    Raises:
        UsageError: The job has a profiler of its own, and NCCL loads one; or this process is one of
            several that a launcher started.
        HostError: This installation has no profiler plugin.
    """
    if ranks_of_launcher(own) > 1:
        raise UsageError(
            "a launcher started this command several times: put it before the launcher, as in "
            "`tuccl workload record -o W.json -- mpirun ...`, or see its --env"
        )
    if own.get(PROFILER_VARIABLE, "none").lower() not in {"", "none"}:
        raise UsageError(
            f"{PROFILER_VARIABLE}={own[PROFILER_VARIABLE]}: NCCL loads one profiler; unset it for "
            "the recording"
        )
    preloaded = " ".join(own.get(PRELOAD_VARIABLE, "").replace(":", " ").split())
    kept = without_executor(preloaded)
    variables = {**own, **recording_variables(directory)}
    if kept != preloaded:
        variables[PRELOAD_VARIABLE] = kept
    return JobEnvironment(variables, lost_executor=kept != preloaded)


@contextmanager
def recording_directory(output: Path) -> Iterator[Path]:
    """Yield a directory beside a workload, which all hosts of a job see if they see that.

    It is removed with all that the processes wrote, unless the block fails after they wrote.

    Raises:
        WorkspaceError: No directory can be made there.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix=f"{output.name}.recording-", dir=output.parent))
        directory.chmod(0o755)
    except OSError as error:
        raise cannot_write(output, error) from error
    try:
        yield directory
    except BaseException:
        if not any(directory.iterdir()):
            directory.rmdir()
        raise
    shutil.rmtree(directory, ignore_errors=True)
