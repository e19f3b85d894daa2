"""Programs with a deadline, which end with all processes that they started.

Each runs as the leader of its own process group, which is killed as a whole. If `timeout`
(coreutils, busybox) is installed, the program runs under it, so that it ends in time even if the
process that started it was killed.
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
"""Time between SIGTERM and SIGKILL."""
_TIMEOUT_MARGIN_S = 5
"""Time between the deadline and the kill by `timeout`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a program that has ended."""

    output: str
    """Text of both streams, in the order of writing."""
    exit_code: int
    timed_out: bool


class Program:
    """A running program; as a context manager it ends the program on exit."""

    def __init__(self, command: Sequence[str], lifetime_s: float) -> None:
        """Start the program.

        Raises:
            OSError: it cannot be started.
        """
        guard = ["timeout", "-s", "KILL", str(math.ceil(lifetime_s) + _TIMEOUT_MARGIN_S)]
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
        """Whether the program runs."""
        return self._process.poll() is None

    def holds_socket(self, inodes: Collection[str]) -> bool:
        """Whether a process of the program's group has one of these sockets open."""
        wanted = {f"socket:[{inode}]" for inode in inodes}
        return bool(wanted) and any(
            not wanted.isdisjoint(_open_files(pid)) for pid in _group(self._process.pid)
        )

    def wait(self, timeout_s: float) -> Ended:
        """Wait for the program's end; end it at the timeout."""
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
        """End the group, if need be by force, and return the output that is still unread."""
        if self._is_over:  # the number of the group may be in use again
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
        except subprocess.TimeoutExpired as late:  # a process outside the group holds the pipe
            self._process.stdout.close()
            output = late.output or b""
        return _text(output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def run(command: Sequence[str], timeout_s: float) -> Ended:
    """Run a program to its end or the deadline.

    Raises:
        OSError: it cannot be started.
    """
    with Program(command, timeout_s) as program:
        return program.wait(timeout_s)


def _group(leader: int) -> list[int]:
    """Return the processes of a group."""
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
