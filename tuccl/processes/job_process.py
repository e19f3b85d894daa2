"""`run_job`: a person's own command, run as a shell runs it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from tuccl.errors import UsageError
from tuccl.processes.interrupts import STOPS

_SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a command."""


def run_job(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command with this process's streams and return its exit code, as a shell counts it.

    Ctrl-C and SIGTERM are the command's: this process waits until it has ended. Ctrl-C reaches both
    from the terminal; SIGTERM is passed on.

    Raises:
        UsageError: The command cannot be started.
    """
    running: list[subprocess.Popen[bytes]] = []
    with _signals_passed_on(running):
        try:
            job = subprocess.Popen(list(words), env=dict(environment))  # noqa: S603 - the user's own
        except OSError as error:
            raise UsageError(
                f"cannot start {words[0]!a:.200}: {error.strerror}; write the command as in a shell"
            ) from error
        running.append(job)
        code = job.wait()
    return _SIGNALLED - code if code < 0 else code


@contextmanager
def _signals_passed_on(running: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM and running:
            running[0].send_signal(number)

    taken = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    # A thread of `interrupts_kept` would end this process soon after a signal.
    watched = signal.set_wakeup_fd(-1)
    before = {number: signal.signal(number, pass_on) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(watched)
