"""A person's own command, run as a shell runs it: `run_job`, and `run_job_into` a file."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

from tuccl.crew.interrupts import STOPS
from tuccl.errors import MeasurementError, Terminated, UsageError
from tuccl.quantities import format_seconds

_SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a command."""
_ENDING_S = 10.0
"""Time that a command has to end by itself after SIGTERM."""


def run_job(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command with this process's streams and return its exit code, as a shell counts it.

    Ctrl-C and SIGTERM are the command's: this process waits until it has ended. Ctrl-C reaches both
    from the terminal; SIGTERM is passed on.

    Raises:
        UsageError: The command cannot be started.
    """
    return _run(words, environment, None, None, [])


def run_job_into(
    output: IO[bytes],
    words: Sequence[str],
    environment: Mapping[str, str],
    limit_s: float | None = None,
) -> int:
    """Run a command as `run_job`, with no input, and with a file for all that it prints.

    Args:
        output: The file.
        words: The command.
        environment: Its environment.
        limit_s: Time after which it is ended; without limit if left out.

    Raises:
        UsageError: The command cannot be started.
        MeasurementError: It ran into the limit.
        KeyboardInterrupt: Ctrl-C or SIGTERM arrived; the command has ended.
    """
    arrived: list[int] = []
    code = _run(words, environment, output, limit_s, arrived)
    if arrived:
        raise Terminated if arrived[0] == signal.SIGTERM else KeyboardInterrupt
    return code


def _run(
    words: Sequence[str],
    environment: Mapping[str, str],
    output: IO[bytes] | None,
    limit_s: float | None,
    arrived: list[int],
) -> int:
    running: list[subprocess.Popen[bytes]] = []
    with _signals_passed_on(running, arrived):
        try:
            job = subprocess.Popen(  # noqa: S603 - the user's own
                list(words),
                env=dict(environment),
                stdin=None if output is None else subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
            )
        except OSError as error:
            raise UsageError(
                f"cannot start {words[0]!a:.200}: {error.strerror}; write the command as in a shell"
            ) from error
        running.append(job)
        try:
            code = job.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end(job)
            raise MeasurementError(
                f"the job did not end within {format_seconds(limit_s or 0.0)}, and was ended; "
                "raise --limit, or find out why it hangs"
            ) from None
    return _SIGNALLED - code if code < 0 else code


def _end(job: subprocess.Popen[bytes]) -> None:
    """End a command by SIGTERM, which a launcher passes to its ranks, at last by SIGKILL."""
    job.terminate()
    try:
        job.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait()


@contextmanager
def _signals_passed_on(
    running: Sequence[subprocess.Popen[bytes]], arrived: list[int]
) -> Iterator[None]:
    """Pass SIGTERM on to a command in the block, and note which signals arrived."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)
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
