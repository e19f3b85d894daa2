"""Run commands of `tuccl` in forked processes of bounded memory and time."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

MOST_S = 20.0
"""Time limit of a command on any input; on valid input each takes about a second."""
MOST_MEMORY_BYTES = 1 << 30
"""Memory limit of a command, beyond its modules."""
DOCUMENTED = (0, 1, 2, 3)
"""Exit codes that docs/reference/commands.md gives for a command that was not interrupted."""
_CRASHED = 70
_MOST_ERROR_BYTES = 1 << 20
"""Limit of a command's standard error; a command that writes more blocks and times out."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child process ended, and its output."""

    code: int
    """Exit code; negative: the signal that ended the child."""
    timed_out: bool
    seconds: float
    most_kib: int
    """Peak resident memory."""
    stdout: str
    stderr: str
    modules: tuple[str, ...]
    """Modules that the command imported."""

    @property
    def fault(self) -> str:
        """Why a command must not end this way; empty if it may."""
        if self.timed_out:
            return f"took more than {MOST_S:g} s"
        if "Traceback (most recent call last)" in self.stderr:
            last = self.stderr.rstrip().rpartition("\n")[2]
            return f"traceback: {last[:200]}"
        if self.code not in DOCUMENTED:
            return f"exit code {self.code}"
        errors = [line for line in self.stderr.splitlines() if line.startswith("tuccl: ")]
        if self.code in {2, 3} and len(errors) != 1:
            return f"exit code {self.code} with {len(errors)} lines of error"
        return ""


def run_command(
    words: Sequence[str], folder: Path, before: Callable[[], None] | None = None
) -> Ended:
    """Run `tuccl WORDS` in a folder.

    Args:
        words: The arguments.
        folder: Where it runs.
        before: Called in the child process before the command.
    """

    def command() -> None:
        from tuccl.cli.app import main  # noqa: PLC0415 - in the child, as late as the command does

        if before is not None:
            before()
        sys.argv = ["tuccl", *words]
        main()

    return run_child(command, folder)


def preload(ended: Ended) -> None:
    """Import the modules that a command imported, so that later children inherit them."""
    for module in ended.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def run_child(work: Callable[[], None], folder: Path) -> Ended:
    """Call `work` in a forked process, in a folder, within the limits."""
    said = {1: folder / ".stdout", 0: folder / ".modules"}
    # A pipe, because a limit on file sizes would truncate the error message about it.
    errors, write_errors = os.pipe()
    fcntl.fcntl(write_errors, fcntl.F_SETPIPE_SZ, _MOST_ERROR_BYTES)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_child(work, folder, said, write_errors)
    os.close(write_errors)
    timed_out = False
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() - start > MOST_S:
            timed_out = True
            # Again and again: at first the child may not lead its group yet.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # Processes that the child left behind.
    texts = {}
    for number, path in said.items():
        texts[number] = path.read_text(errors="replace") if path.exists() else ""
        path.unlink(missing_ok=True)
    with os.fdopen(errors, encoding="utf-8", errors="replace") as file:
        stderr = file.read()
    return Ended(
        os.waitstatus_to_exitcode(status),
        timed_out,
        time.monotonic() - start,
        usage.ru_maxrss,
        texts[1],
        stderr,
        tuple(texts[0].split()),
    )


def _be_child(
    work: Callable[[], None], folder: Path, said: dict[int, Path], errors: int
) -> NoReturn:
    code = _CRASHED
    before: set[str] = set()
    try:
        os.setpgid(0, 0)
        before = set(sys.modules)
        os.dup2(os.open(said[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.dup2(errors, 2)
        os.close(errors)
        os.chdir(folder)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + MOST_MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - any exception is a finding
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            said[0].write_text("\n".join(sys.modules.keys() - before))
        os._exit(code)
