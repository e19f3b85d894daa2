"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the program happens to be. In a finalizer, a callback of a
weak reference or one of native code there is no caller to take it: Python reports and drops it, and
the program goes on. Here the signal is noted first, raised again soon after it was dropped, and
asked for at every step of progress and at the end.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_AFTER_S = 0.01
_arrived = False


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Notes Ctrl-C in the block, where it raises KeyboardInterrupt as without; main thread only.

    Where Ctrl-C is ignored or somebody else's, all stays as it is.
    """
    global _arrived  # noqa: PLW0603 - a signal belongs to the process, and so does its note
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _arrived = False
    hook = sys.unraisablehook
    alarm = signal.signal(signal.SIGALRM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _raise_again_soon
    try:
        yield
        raise_if_interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _arrived = False
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # None: of native code, which nobody can put back.
        signal.signal(signal.SIGALRM, alarm or signal.SIG_DFL)


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if Ctrl-C arrived in the block and the program goes on."""
    if _arrived:
        raise KeyboardInterrupt


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _arrived  # noqa: PLW0603 - see above
    _arrived = True
    raise KeyboardInterrupt


def _raise_again_soon(unraisable: sys.UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER_S)
    else:
        sys.__unraisablehook__(unraisable)
