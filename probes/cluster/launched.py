"""A crew reached through a launcher: one subprocess per host, such as `ssh {host} COMMAND`.

Requests go to the subprocess's standard input, replies come from its standard output, and the last
line of its standard error tells why it ended. One thread reads from all hosts.
"""

from __future__ import annotations

import os
import re
import resource
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from probes.cluster.crew import Answers, HostFailure, answer_of
from probes.cluster.messages import (
    Failed,
    Reply,
    Request,
    reply_from_line,
    request_to_line,
)
from tuccl.errors import MachineError, MessageError

DEFAULT_LAUNCHER = "ssh -o BatchMode=yes {host}"
_MAX_LINE_BYTES = 64 << 20
_STDERR_BYTES = 2000
_HOST_NAME = re.compile(r"[\w.:%@+~][\w.:%@+~-]*")
"""Names that a launcher cannot take for an option, and a shell takes as one word."""
_FILES_PER_HOST = 3
_OTHER_FILES = 100
_GOODBYE_S = 3.0
"""Time limit for a subprocess to end by itself."""


_WORKER = ("-P", "-m", "probes.cluster.worker")


def launch_command(
    launcher: str, host: str, python: str = "", arguments: Sequence[str] = _WORKER
) -> list[str]:
    """Return the command that starts a worker on a host.

    Args:
        launcher: command with `{host}` for the host's name and `{command}` for the worker's
            command, which is appended if `{command}` is missing.
        host: name of the host.
        python: path of Python on that host; empty for the path of this Python.
        arguments: arguments of Python; the worker's by default.

    Raises:
        MachineError: no `{host}`, unbalanced quotes, or an invalid host name.
    """
    if not _HOST_NAME.fullmatch(host):
        raise MachineError(
            f"host {host!a:.60} cannot be given to a launcher: use letters, digits and .:%@+~_-, "
            "no dash in front"
        )
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise MachineError(f"--launcher {launcher!a:.80}: {error}; balance its quotes") from error
    if not any("{host}" in word for word in words):
        raise MachineError(
            f"--launcher {launcher!a:.80} does not say where the host's name goes: write {{host}}"
        )
    worker = [python or sys.executable, *arguments]
    if not any("{command}" in word for word in words):
        words += worker
    command: list[str] = []
    for word in words:
        if word == "{command}":
            command += worker
        else:
            filled = word.replace("{command}", shlex.join(worker))
            command.append(filled.replace("{host}", host))
    return command


def _raise_file_limit(hosts: int) -> None:
    """Raise the limit of open files to a few for every host; the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = hosts * _FILES_PER_HOST + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise MachineError(
            f"{hosts:,} hosts take {needed} open files and this process may open {hard}: raise "
            "that with ulimit -n, or start one task per host with srun or mpirun"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class LaunchedCrew:
    """A crew with a worker per host, started when the crew is created."""

    names_are_given = True

    def __init__(self, names: Sequence[str], launcher: str, python: str = "") -> None:
        commands = [launch_command(launcher, name, python) for name in names]
        _raise_file_limit(len(names))
        self.names = tuple(names)
        self._asked = 0
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        try:
            for name, command in zip(names, commands, strict=True):
                self._start(_Worker(name, command))
        except BaseException:
            self.close()
            raise

    def _start(self, worker: _Worker) -> None:
        index = len(self._workers)
        self._workers.append(worker)
        for stream in worker.streams():
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, index)

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> Answers:
        """See `Crew`."""
        self._asked += 1
        answers: Answers = {}
        for index, request in requests.items():
            self._workers[index].send(request_to_line(self._asked, request))
        deadline = time.monotonic() + timeout_s
        while True:
            for index in requests.keys() - answers.keys():
                worker = self._workers[index]
                if worker.failure:
                    answers[index] = HostFailure(worker.name, worker.failure)
                elif (reply := worker.replies.pop(self._asked, None)) is not None:
                    answers[index] = answer_of(worker.name, reply)
            remaining_s = deadline - time.monotonic()
            if len(answers) == len(requests):
                return {index: answers[index] for index in requests}
            if remaining_s <= 0:
                for index in requests.keys() - answers.keys():
                    self._workers[index].give_up(f"no answer within {timeout_s:g} s")
                continue
            for key, _ in self._selector.select(remaining_s):
                if not self._workers[key.data].receive(key.fileobj):
                    self._selector.unregister(key.fileobj)

    def close(self) -> None:
        """End all workers; those that do not end by themselves are killed."""
        self._selector.close()
        for worker in self._workers:
            worker.close_input()
        deadline = time.monotonic() + _GOODBYE_S
        for worker in self._workers:
            worker.end(max(0.0, deadline - time.monotonic()))


class _Worker:
    """The subprocess of one host."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.failure = ""
        self.replies: dict[int, Reply] = {}
        self._line = bytearray()
        self._stderr = b""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # A session of its own: Ctrl-C reaches the leader alone, which then ends the workers.
            self._process = subprocess.Popen(  # noqa: S603 - the user's own launcher
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self.failure = f"the launcher cannot be started: {command[0]}: {error.strerror}"

    def streams(self) -> list[IO[bytes]]:
        process = self._process
        return [] if process is None else [s for s in (process.stdout, process.stderr) if s]

    def send(self, line: bytes) -> None:
        if self._process is None or self._process.stdin is None or self.failure:
            return
        # If the worker has ended, its standard error, still to be read, tells why.
        with suppress(OSError):
            self._process.stdin.write(line)

    def receive(self, stream: object) -> bool:
        """Read from a stream; return False at its end."""
        if self._process is None or self._process.stdout is None:
            return False
        if stream is self._process.stderr:
            return self._read_stderr()
        try:
            data = os.read(self._process.stdout.fileno(), 1 << 16)
        except OSError:
            data = b""
        if data:
            self._append(data)
        elif not self.failure:
            self._explain_end()
        return bool(data)

    def _read_stderr(self) -> bool:
        """Read standard error and keep its end; return False when there is nothing."""
        if self._process is None or self._process.stderr is None:
            return False
        try:
            data = os.read(self._process.stderr.fileno(), 1 << 16)
        except OSError:
            return False
        self._stderr = (self._stderr + data)[-_STDERR_BYTES:]
        return bool(data)

    def _append(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            self._handle_line(bytes(self._line))
            self._line.clear()
        self._line += rest
        if len(self._line) > _MAX_LINE_BYTES:
            self.give_up("its worker sent a line without an end")

    def _handle_line(self, line: bytes) -> None:
        # A login shell may print a greeting on the same stream: ignore lines that are no messages.
        if self.failure or not line.startswith(b"{"):
            return
        try:
            number, reply = reply_from_line(line, self.name)
        except MessageError as error:
            self.give_up(str(error))
            return
        if number == 0 and isinstance(reply, Failed):
            self.give_up(reply.reason)
        self.replies[number] = reply

    def _explain_end(self) -> None:
        """Set the failure after an unexpected end, from the exit code and standard error."""
        if self._process is None:
            return
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.give_up("its worker closed the connection")
            return
        while self._process.stderr is not None and self._read_stderr():
            pass
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.failure = f"the launcher ended with {cause}{self._stderr_tail()}"

    def give_up(self, reason: str) -> None:
        """Mark the host as lost and tell the worker to end itself and its children."""
        self.failure = self.failure or reason + self._stderr_tail()
        self._signal(signal.SIGTERM)

    def close_input(self) -> None:
        """Close standard input, which tells the worker to end."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def end(self, timeout_s: float) -> None:
        """Wait for the end, and kill the worker at the timeout."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        for stream in self.streams():
            stream.close()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _stderr_tail(self) -> str:
        lines = self._stderr.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last:.200}" if last else ""
