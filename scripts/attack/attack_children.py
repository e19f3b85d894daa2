"""Commands of `tuccl` in forked processes of bounded memory and time, and what became of them."""

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
"""A command may take on any input; each takes about a second on a good one."""
MOST_MEMORY_BYTES = 1 << 30
"""That a command may use beyond what its modules take."""
DOCUMENTED = (0, 1, 2, 3)
"""Exit codes of docs/reference/commands.md of a command that nobody stopped."""
_CRASHED = 70
_MOST_ERROR_BYTES = 1 << 20
"""Of a command's standard error; who writes more waits, and is over the time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended and what it said."""

    code: int
    """Its exit code; below zero the signal that ended it."""
    timed_out: bool
    seconds: float
    most_kib: int
    """Of resident memory."""
    stdout: str
    stderr: str
    modules: tuple[str, ...]
    """That it imported."""

    @property
    def fault(self) -> str:
        """Why that is no good end of a command, or nothing."""
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
    """`tuccl WORDS` in a folder.

    Args:
        words: The arguments.
        folder: Where it runs.
        before: Called in the child before the command.
    """

    def command() -> None:
        from tuccl.cli.app import main  # noqa: PLC0415 - in the child, as late as the command does

        if before is not None:
            before()
        sys.argv = ["tuccl", *words]
        main()

    return run_child(command, folder)


def preload(ended: Ended) -> None:
    """Import here what a command imported, so that the next child need not."""
    for module in ended.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def run_child(work: Callable[[], None], folder: Path) -> Ended:
    """Do something in a forked process, in a folder, within the limits."""
    said = {1: folder / ".stdout", 0: folder / ".modules"}
    # A pipe, because a limit on the size of files would cut what is said of it.
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
        if not timed_out and time.monotonic() - start > MOST_S:
            timed_out = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # What it started and left behind.
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
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            said[0].write_text("\n".join(sys.modules.keys() - before))
        os._exit(code)
