"""Processes that this one starts: `WorkerProcess`, and `Staff`, all workers by number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from probes.inputs.messages import printable, without_escapes
from tuccl.crew.messages import to_bytes

_LAST_WORDS_BYTES = 4000
_LAST_WORDS_LENGTH = 300
_KILL_ATTEMPTS = 20
"""Attempts to kill all children: one of them may start another process in the meantime."""


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """A worker's number and leader, passed on its standard input."""

    number: int
    """Unique in the run."""
    addresses: tuple[tuple[str, int], ...]
    key: str
    """Hexadecimal."""


class WorkerProcess:
    """A child process; end it with `kill` and `close`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None, *, talks: bool = False
    ) -> None:
        """Start the process.

        Args:
            command: The command.
            environment: The complete environment; that of this process if left out.
            talks: Whether its standard output is a pipe; otherwise it joins standard error.

        Raises:
            OSError: No process can be started.
        """
        # A file, not a pipe: no process has to read it while NCCL_DEBUG fills it.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            # A session of its own: Ctrl-C reaches the leader alone, which then ends its workers.
            self._process = subprocess.Popen(  # noqa: S603 - this very program, or a launcher
                list(command),
                env=None if environment is None else dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else self._words,
                stderr=self._words,
                bufsize=0,
                start_new_session=True,
            )
        except BaseException:
            self._words.close()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its standard output and input, if it talks."""
        output, into = self._process.stdout, self._process.stdin
        if output is None or into is None:
            raise TypeError("the process does not talk")
        return output, into

    def give(self, line: bytes) -> None:
        """Write all that it will read from its standard input."""
        if self._process.stdin is not None:
            with suppress(OSError):  # It died at once: `ended` says how.
                self._process.stdin.write(line)
                self._process.stdin.close()

    def ended(self, patience_s: float = 0.0) -> str:
        """Return how it ended, in half a sentence with its last line; empty while it runs."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return ""
        how = f"killed by signal {-code} ({_signal_name(-code)})" if code < 0 else f"exit {code}"
        said = self.last_words()
        return f"{how}: {said}" if said else how

    def last_words(self) -> str:
        """Return the last line of its standard error, without what would steer a terminal."""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - _LAST_WORDS_BYTES))
        lines = without_escapes(self._words.read().decode(errors="replace")).split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return printable(last, _LAST_WORDS_LENGTH)

    def kill(self) -> None:
        """Kill it if it still runs, with all processes of its session."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end."""
        self._process.wait()
        self._words.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def end_processes(leaving: Sequence[WorkerProcess], patience_s: float) -> None:
    """End processes, by force after `patience_s` for all of them together."""
    deadline = time.monotonic() + patience_s
    for process in leaving:
        process.ended(max(0.0, deadline - time.monotonic()))
    # Kill all before the first wait: a device takes long to release a process.
    for process in leaving:
        process.kill()
    for process in leaving:
        process.close()


@dataclass
class Staff:
    """The workers that this process started, by number."""

    environment: Mapping[str, str]
    """Environment of every worker."""
    _workers: dict[int, WorkerProcess] = field(default_factory=dict)
    _not_started: dict[int, str] = field(default_factory=dict)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids in the order of the starts."""
        return tuple(worker.pid for worker in self._workers.values())

    def start(self, order: WorkerOrder, environment: Mapping[str, str]) -> None:
        """Begin to start a worker, with variables in addition to those of all workers."""
        try:
            worker = WorkerProcess(worker_command(), {**self.environment, **environment})
        except OSError as error:
            self._not_started[order.number] = f"its process cannot be started: {error.strerror}"
            return
        self._workers[order.number] = worker
        worker.give(to_bytes(order.number, order) + b"\n")

    def ended(self, number: int, patience_s: float) -> str:
        """Return how a worker ended; empty if it still runs after `patience_s`."""
        worker = self._workers.get(number)
        return self._not_started.get(number, "") if worker is None else worker.ended(patience_s)

    def end(self, numbers: Sequence[int], patience_s: float) -> None:
        """End workers, by force after `patience_s` for all of them together."""
        end_processes(
            [self._workers.pop(number) for number in numbers if number in self._workers], patience_s
        )
        for number in numbers:
            self._not_started.pop(number, None)

    def end_all(self) -> None:
        """End all by force."""
        self.end(list(self._workers), 0.0)


def kill_children() -> None:
    """Kill all descendants of this process."""
    import psutil  # noqa: PLC0415 - slow, and seldom needed

    for _ in range(_KILL_ATTEMPTS):
        children = psutil.Process().children(recursive=True)
        if not children:
            return
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=1.0)


def worker_command(*words: str) -> list[str]:
    """Return the command of a worker, which imports every module from where this process does."""
    path = f"import sys; sys.path[:] = dict.fromkeys([*{sys.path!r}, *sys.path])"
    main = "from tuccl.crew.worker import main; main()"
    return [sys.executable, "-P", "-c", f"{path}; {main}", *words]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
