"""Child processes of a host of workers: `WorkerProcess`, and `Staff`, all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from tuccl.measuring.workers.messages import WorkerOrder

_LAST_WORDS_BYTES = 4000


class WorkerProcess:
    """A worker process; end it with `kill` and `close`."""

    def __init__(self, order: WorkerOrder, environment: Mapping[str, str]) -> None:
        """Start the process.

        Args:
            order: The worker's order, passed on its standard input.
            environment: The complete environment.

        Raises:
            OSError: No process can be started.
        """
        # A file, not a pipe: no process has to read it while NCCL_DEBUG fills it.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            # A session of its own: Ctrl-C reaches the leader alone, which then ends its workers.
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-P", "-c", _program()],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=self._words,
                stderr=self._words,
                start_new_session=True,
            )
        except BaseException:
            self._words.close()
            raise
        line = json.dumps(asdict(order)).encode() + b"\n"
        if self._process.stdin is not None:
            with suppress(OSError):  # It died at once: `ended` says how.
                self._process.stdin.write(line)
                self._process.stdin.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

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
        """Return the last line of its standard error."""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - _LAST_WORDS_BYTES))
        lines = self._words.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return last[:300]

    def kill(self) -> None:
        """Kill it if it still runs, with all processes of its session."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end."""
        self._process.wait()
        self._words.close()


class Staff:
    """The workers that this process started, by number."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Start without workers.

        Args:
            environment: Environment of every worker; None: that of this process.
        """
        self._environment = os.environ if environment is None else environment
        self._workers: dict[int, WorkerProcess] = {}
        self._not_started: dict[int, str] = {}

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids in the order of the starts."""
        return tuple(worker.pid for worker in self._workers.values())

    def start(self, order: WorkerOrder, environment: Mapping[str, str]) -> None:
        """Begin to start a worker, with variables in addition to those of all workers."""
        try:
            self._workers[order.number] = WorkerProcess(order, {**self._environment, **environment})
        except OSError as error:
            self._not_started[order.number] = f"its process cannot be started: {error.strerror}"

    def ended(self, number: int, patience_s: float) -> str:
        """Return how a worker ended; empty when it still runs after `patience_s`."""
        worker = self._workers.get(number)
        return self._not_started.get(number, "") if worker is None else worker.ended(patience_s)

    def end(self, numbers: Sequence[int], patience_s: float) -> None:
        """End workers, by force after `patience_s` for all of them together."""
        deadline = time.monotonic() + patience_s
        leaving = [self._workers.pop(number) for number in numbers if number in self._workers]
        for worker in leaving:
            worker.ended(max(0.0, deadline - time.monotonic()))
        # Kill all before the first wait: a device takes long to release a process.
        for worker in leaving:
            worker.kill()
        for worker in leaving:
            worker.close()
        for number in numbers:
            self._not_started.pop(number, None)

    def end_all(self) -> None:
        """End all by force."""
        self.end(list(self._workers), 0.0)


def _program() -> str:
    """Return the worker's program, which imports every module from where this process does."""
    path = f"import sys; sys.path[:] = dict.fromkeys([*{sys.path!r}, *sys.path[1:]])"
    return f"{path}; from tuccl.measuring.workers.worker import main; main()"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
