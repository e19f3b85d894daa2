"""A crew reached through a launcher: one subprocess per host, such as `ssh {host} COMMAND`.

Requests go to the subprocess's standard input, replies come from its standard output, and the last
words on its standard error tell why it ended. All hosts are read by one thread.
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
from probes.cluster.errors import LauncherError, MessageError
from probes.cluster.messages import (
    Failed,
    Reply,
    Request,
    reply_from_line,
    request_to_line,
)

DEFAULT_LAUNCHER = "ssh -o BatchMode=yes {host}"
_MAX_LINE_BYTES = 64 << 20
_LAST_WORDS_BYTES = 2000
_HOST_NAME = re.compile(r"[\w.:%@+~][\w.:%@+~-]*")
"""Nothing that a launcher takes for an option, or a shell for more than a word."""
_FILES_PER_HOST = 3
_FILES_ELSEWHERE = 100
_GOODBYE_S = 3.0
"""How long a subprocess may take to end by itself."""


def launch_command(launcher: str, host: str, python: str = "") -> list[str]:
    """The words that start a worker on a host.

    Args:
        launcher: with `{host}` where the host's name goes; the worker's command follows it, or
            stands where it says `{command}`.
        host: its name.
        python: on that host; empty for the path of this one.

    Raises:
        LauncherError: no `{host}`, unbalanced quotes, or a name that is none.
    """
    if not _HOST_NAME.fullmatch(host):
        raise LauncherError(
            f"host {host!a:.60} cannot be given to a launcher: use letters, digits and .:%@+~_-, "
            "no dash in front"
        )
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise LauncherError(f"--launcher {launcher!a:.80}: {error}; balance its quotes") from error
    if not any("{host}" in word for word in words):
        raise LauncherError(
            f"--launcher {launcher!a:.80} does not say where the host's name goes: write {{host}}"
        )
    worker = [python or sys.executable, "-m", "probes.cluster.worker"]
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


def _make_room(hosts: int) -> None:
    """Let this process open a few files for every host; most may open 1,024 unless they ask."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hosts * _FILES_PER_HOST + _FILES_ELSEWHERE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise LauncherError(
            f"{hosts:,} hosts take {wanted} open files and this process may open {hard}: raise "
            "that with ulimit -n, or start one task per host with srun or mpirun"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class LaunchedCrew:
    """A worker per host, started when the crew is made."""

    names_are_given = True

    def __init__(self, names: Sequence[str], launcher: str, python: str = "") -> None:
        commands = [launch_command(launcher, name, python) for name in names]
        _make_room(len(names))
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
        place = len(self._workers)
        self._workers.append(worker)
        for stream in worker.streams():
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, place)

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> Answers:
        """See `Crew`."""
        self._asked += 1
        answers: Answers = {}
        for place, request in requests.items():
            self._workers[place].send(request_to_line(self._asked, request))
        deadline = time.monotonic() + timeout_s
        while True:
            for place in requests.keys() - answers.keys():
                worker = self._workers[place]
                if worker.failure:
                    answers[place] = HostFailure(worker.name, worker.failure)
                elif (reply := worker.replies.pop(self._asked, None)) is not None:
                    answers[place] = answer_of(worker.name, reply)
            left = deadline - time.monotonic()
            if len(answers) == len(requests):
                return {place: answers[place] for place in requests}
            if left <= 0:
                for place in requests.keys() - answers.keys():
                    self._workers[place].give_up(f"no answer within {timeout_s:g} s")
                continue
            for key, _ in self._selector.select(left):
                if not self._workers[key.data].receive(key.fileobj):
                    self._selector.unregister(key.fileobj)

    def close(self) -> None:
        """End all workers; those that do not leave by themselves are killed."""
        self._selector.close()
        for worker in self._workers:
            worker.hang_up()
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
        self._last_words = b""
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
        # When the worker has ended, what it said tells why, and that is still to be read.
        with suppress(OSError):
            self._process.stdin.write(line)

    def receive(self, stream: object) -> bool:
        """Read what a stream has; False at its end."""
        if self._process is None or self._process.stdout is None:
            return False
        if stream is self._process.stderr:
            return self._read_words()
        try:
            data = os.read(self._process.stdout.fileno(), 1 << 16)
        except OSError:
            data = b""
        if data:
            self._take(data)
        elif not self.failure:
            self._explain_end()
        return bool(data)

    def _read_words(self) -> bool:
        """Keep the end of what standard error has; False when there is nothing."""
        if self._process is None or self._process.stderr is None:
            return False
        try:
            data = os.read(self._process.stderr.fileno(), 1 << 16)
        except OSError:
            return False
        self._last_words = (self._last_words + data)[-_LAST_WORDS_BYTES:]
        return bool(data)

    def _take(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            self._take_line(bytes(self._line))
            self._line.clear()
        self._line += rest
        if len(self._line) > _MAX_LINE_BYTES:
            self.give_up("its worker writes without end")

    def _take_line(self, line: bytes) -> None:
        # A login shell may greet on the same stream: what is no message at all is not for us.
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
        """The reason of an unexpected end, from the exit code and the last words."""
        if self._process is None:
            return
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.give_up("its worker closed the connection")
            return
        while self._process.stderr is not None and self._read_words():
            pass
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.failure = f"the launcher ended with {how}{self._said()}"

    def give_up(self, reason: str) -> None:
        """The host is lost: a worker that still can is to end itself and what it started."""
        self.failure = self.failure or reason + self._said()
        self._signal(signal.SIGTERM)

    def hang_up(self) -> None:
        """Close standard input, which tells a worker to end."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def end(self, patience_s: float) -> None:
        """Wait for the end, or bring it about."""
        if self._process is None:
            return
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        for stream in self.streams():
            stream.close()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _said(self) -> str:
        lines = self._last_words.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last:.200}" if last else ""
