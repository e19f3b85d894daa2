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
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _Runs:
    running: dict[CompilerRun, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, run: CompilerRun) -> None:
        with run.said.open("wb") as said:
            try:
                process = subprocess.Popen(  # noqa: S603 - the user's compiler, without a shell
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
        self.running[run] = process

    def ended(self) -> list[CompilerRun]:
        """Those that ended since they were asked for last.

        Raises:
            HostError: One failed.
        """
        ended = []
        for run, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[run]
                ended.append(run)
                if process.returncode != 0:
                    raise _failure(run, process.returncode)
        return ended

    def kill(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_compilers(runs: Sequence[CompilerRun], at_once: int, progress: Progress) -> None:
    """Run all, the first ones first, so many at once.

    Raises:
        HostError: One failed, or could not be started; the others were ended.
    """
    waiting = list(reversed(runs))
    state = _Runs()
    done = 0
    try:
        while waiting or state.running:
            while waiting and len(state.running) < at_once:
                state.start(waiting.pop())
            done += len(state.ended())
            progress(done, [run.what for run in state.running])
            time.sleep(_LOOK_EVERY_S)
    finally:
        state.kill()


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
