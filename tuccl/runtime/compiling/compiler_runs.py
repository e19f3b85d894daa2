"""Runs compilers side by side, and ends all of them when one fails or Ctrl-C comes."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import HostError

Progress = Callable[[int, Sequence[str]], None]
"""Told how many runs have ended and what is running."""

_LOOK_EVERY_S = 0.03


@dataclass(frozen=True, slots=True)
class CompilerRun:
    """A compiler's command."""

    what: str
    """For a person: the name of the source, or of the library."""
    command: tuple[str, ...]
    output: Path
    """File that it makes; what the compiler says goes beside it."""
    size_bytes: int = 0
    """Size of the source."""

    @property
    def said(self) -> Path:
        """File of what the compiler says."""
        return self.output.with_name(f"{self.output.name}.log")


def run_compilers(runs: Sequence[CompilerRun], at_once: int, progress: Progress) -> None:
    """Run all, the first ones first, so many at once.

    Raises:
        HostError: One failed, or could not be started; the others were ended.
    """
    waiting = list(reversed(runs))
    running: dict[CompilerRun, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                run = waiting.pop()
                running[run] = _started(run)
            for run, process in list(running.items()):
                if process.poll() is not None:
                    del running[run]
                    if process.returncode != 0:
                        raise _failure(run, process.returncode)
            progress(len(runs) - len(waiting) - len(running), [run.what for run in running])
            time.sleep(_LOOK_EVERY_S)
    finally:
        for process in running.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _started(run: CompilerRun) -> subprocess.Popen[bytes]:
    with run.said.open("wb") as said:
        try:
            return subprocess.Popen(  # noqa: S603 - the user's compiler, without a shell
                run.command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                process_group=0,  # nvcc starts further programs, which end with it.
                # What nvcc leaves when it is killed goes with the folder of the outputs.
                env={**os.environ, "TMPDIR": str(run.output.parent), "LC_ALL": "C"},
            )
        except OSError as error:
            raise HostError(f"{run.command[0]}: {error.strerror}; check it") from error


def _failure(run: CompilerRun, code: int) -> HostError:
    """The error, after what the compiler said was saved where it stays."""
    how = f"was killed by signal {-code}" if code < 0 else f"exit code {code}"
    text = f"{shlex.join(run.command)}\n{run.said.read_text(errors='replace')}"
    descriptor, log = tempfile.mkstemp(prefix="tuccl-build-executor-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    compiler = Path(run.command[0]).name
    return HostError(
        f"{run.what} does not compile ({compiler}: {how}); what the compiler said is in {log}"
    )
