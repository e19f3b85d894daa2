"""Ctrl-C and SIGTERM, by which Slurm ends what has run too long, end a command in the same way.

Python raises KeyboardInterrupt wherever the program happens to be. In a finalizer, a callback of a
weak reference or one of native code there is no caller to take it: Python reports and drops it, and
the program goes on. Here the signal is noted first, raised again soon after it was dropped, and
asked for at every step of progress and at the end. SIGTERM raises `Terminated`, a KeyboardInterrupt
of its own exit code. Only the first signal counts: a second one would interrupt the cleaning up
that the first has begun (`timeout` sends two at once). A program that has not ended a few seconds
later, because native code does not return, is ended by force.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from tuccl.crew.started_rank import is_rank_0
from tuccl.errors import ConnectionLostError, ExitCode, MessageError, Terminated

STOPS = frozenset({signal.SIGINT, signal.SIGTERM})
_AGAIN_AFTER_S = 0.01
_PATIENCE_S = 5.0
"""From the first signal to the end by force."""
_WORD_S = 15.0
"""Time for the rank that says why a job fails to say so, and to exit."""
_SPEAKER_S = 60.0
"""Time for it to dismiss all others before."""
_CONTINUED = ("init", "tune", "retune")
"""Commands that continue where they stopped."""
_MPI = "mpi4py.MPI"
_arrived: signal.Signals | None = None
_held = 0
"""How many blocks of the main thread hold signals."""
_told = False


@contextmanager
def interrupts_kept(*, ends_process: bool = False) -> Iterator[None]:
    """Notes Ctrl-C and SIGTERM in the block, where both raise KeyboardInterrupt; main thread only.

    A signal that is ignored, or handled by somebody else, stays as it is. A block inside such a
    block shares its signals.

    Args:
        ends_process: The process ends after a block that was stopped: it ignores further signals,
            and is ended by force if the block does not end soon.
    """
    global _arrived, _told  # noqa: PLW0603 - a signal belongs to the process, and so does its note
    taken = _signals_to_take()
    if not taken:
        with failures_by_signals():
            yield
        return
    _arrived, _told = None, False
    hook = sys.unraisablehook
    alarm = signal.signal(signal.SIGALRM, _raise_again)
    before = {number: signal.signal(number, _stop) for number in taken}
    sys.unraisablehook = _raise_again_soon
    pipe = _end_by_force_after_a_signal() if ends_process else None
    try:
        with failures_by_signals():
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        stopped = ends_process and _arrived is not None
        for number, handler in before.items():
            if signal.getsignal(number) is _stop:
                signal.signal(number, signal.SIG_IGN if stopped else handler)
        sys.unraisablehook = hook
        # A handler of native code is None here, and cannot be put back.
        signal.signal(signal.SIGALRM, alarm or signal.SIG_DFL)
        if not stopped:
            _arrived = None
            if pipe is not None:
                signal.set_wakeup_fd(-1)
                os.close(pipe)


@contextmanager
def failures_by_signals() -> Iterator[None]:
    """A failure after a signal that all processes were sent counts as that signal's."""
    try:
        yield
        raise_if_interrupted()
    except Exception as error:
        if _arrived is not None:
            raise _error() from error
        raise


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if a signal arrived in the block and the program goes on."""
    if _arrived is not None:
        raise _error()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Keeps Ctrl-C and SIGTERM waiting until the block has ended, for what must not be half done.

    Processes and threads that start in it never see them.
    """
    global _held  # noqa: PLW0603 - see above
    # The mask is for what starts here: another thread may take the signal for this process.
    here = threading.current_thread() is threading.main_thread()
    before = _arrived
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    _held += here
    try:
        yield
    finally:
        _held -= here
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if here and not _held and before is None:
        raise_if_interrupted()


def tell_stopped(code: ExitCode, environment: Mapping[str, str] = os.environ) -> None:
    """Says once, in a line, what ended the command and what continues it; under MPI on rank 0."""
    global _told  # noqa: PLW0603 - see above
    if _told or not is_rank_0(environment):
        return
    _told = True
    why = "terminated" if code == ExitCode.TERMINATED else "interrupted"
    continues = bool(sys.argv[1:]) and sys.argv[1] in _CONTINUED
    remedy = "; the same command continues where it stopped" if continues else ""
    os.write(2, f"tuccl: {why}{remedy}\n".encode())


def leave_the_word(code: int, await_end: Callable[[float], object] | None = None) -> int:
    """Let the rank that says why the job fails end first; return this rank's exit code.

    A launcher ends all ranks as soon as one has failed, even if the one that is to speak has not
    yet. The launcher's signal ends the wait, with the same exit code.

    Args:
        code: The exit code.
        await_end: Waits so many seconds for its end, or a message of it, if there is a connection.
    """
    for number in STOPS:
        signal.signal(number, lambda *_: os._exit(code))
    if await_end is not None:
        with suppress(ConnectionLostError, MessageError):
            await_end(_SPEAKER_S)
    time.sleep(_WORD_S)
    return code


def _signals_to_take() -> list[signal.Signals]:
    untouched = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    return [number for number, handler in untouched.items() if signal.getsignal(number) is handler]


def _stop(number: int, _frame: FrameType | None) -> None:
    global _arrived  # noqa: PLW0603 - see above
    if _arrived is None:
        _arrived = signal.Signals(number)
        if _arrived is signal.SIGTERM and _MPI in sys.modules:
            tell_stopped(ExitCode.TERMINATED)  # mpirun kills its ranks a tenth of a second later.
        if not _held:
            raise _error()


def _error() -> KeyboardInterrupt:
    return Terminated() if _arrived is signal.SIGTERM else KeyboardInterrupt()


def _raise_again(_number: int, _frame: FrameType | None) -> None:
    raise_if_interrupted()


def _raise_again_soon(unraisable: sys.UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER_S)
    else:
        sys.__unraisablehook__(unraisable)


def _end_by_force_after_a_signal() -> int:
    """Let a thread see signals even while native code keeps handlers waiting.

    Returns:
        What to close when it is to watch no longer.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reading, 1):
            if number[0] in STOPS:
                time.sleep(_PATIENCE_S)
                _end_by_force(signal.Signals(number[0]))
        os.close(reading)

    with interrupts_held():
        threading.Thread(target=watch, daemon=True).start()
    return writing


def _end_by_force(number: signal.Signals) -> None:
    from tuccl.crew.worker_process import kill_children  # noqa: PLC0415 - only if need be

    code = ExitCode.TERMINATED if number is signal.SIGTERM else ExitCode.INTERRUPTED
    tell_stopped(code)
    kill_children()
    os._exit(code)
