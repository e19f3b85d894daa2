"""Programs with a deadline, ended together with whatever they started.

Each runs as the leader of its own process group, which is killed as a whole. Where there is
`timeout` (coreutils, busybox) it stands between: then a program ends in time even if the process
that started it was killed and could not end it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

GRACE_S = 0.5
"""From the request to end until the program is killed."""
_BEYOND_S = 5
"""How much later than the deadline `timeout` strikes."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended."""

    output: str
    """Both streams, in the order they were written."""
    exit_code: int
    timed_out: bool


class Program:
    """A running program; as a context manager it is ended on the way out."""

    def __init__(self, command: Sequence[str], lifetime_s: float) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        guard = ["timeout", "-s", "KILL", str(math.ceil(lifetime_s) + _BEYOND_S)]
        self._process = subprocess.Popen(  # noqa: S603 - commands are built here, without a shell
            [*(guard if shutil.which("timeout") else []), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
        self._is_over = False

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def holds_socket(self, inodes: Collection[str]) -> bool:
        """Whether it, or a process that it started, has one of these sockets open."""
        wanted = {f"socket:[{inode}]" for inode in inodes}
        return bool(wanted) and any(
            not wanted.isdisjoint(_open_files(pid)) for pid in _group(self._process.pid)
        )

    def wait(self, timeout_s: float) -> Ended:
        """Wait for its end; past the time, end it."""
        try:
            output, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Ended(self.end(), self._process.returncode, timed_out=True)
        except BaseException:
            self.end()
            raise
        self.end()
        return Ended(_text(output), self._process.returncode, timed_out=False)

    def end(self) -> str:
        """End the group, if need be by force; returns what of the output nobody has had yet."""
        if self._is_over:  # the number of the group may belong to somebody else by now
            return ""
        self._is_over = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            # The group may outlive its leader, therefore it is signalled even if that has ended.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        return self._rest()

    def _rest(self) -> str:
        if self._process.stdout is None or self._process.stdout.closed:
            return ""
        try:
            output, _ = self._process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired as late:  # someone outside the group holds the pipe
            self._process.stdout.close()
            output = late.output or b""
        return _text(output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def run(command: Sequence[str], timeout_s: float) -> Ended:
    """Run a program to its end, or to the deadline.

    Raises:
        OSError: it cannot be started.
    """
    with Program(command, timeout_s) as program:
        return program.wait(timeout_s)


def _group(leader: int) -> list[int]:
    """The processes of a group."""
    members = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, ProcessLookupError):
            if os.getpgid(int(entry.name)) == leader:
                members.append(int(entry.name))
    return members


def _open_files(pid: int) -> set[str]:
    files = set()
    with contextlib.suppress(OSError):  # the process, or a file of it, is gone
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                files.add(str(entry.readlink()))
    return files


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")
