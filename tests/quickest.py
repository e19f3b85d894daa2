"""Time a quick call on a machine that may be busy."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def quickest_of_three(call: Callable[[], Result]) -> tuple[Result, float]:
    """Call three times; return the last result and the seconds of the quickest call."""
    spent_s = []
    for _ in range(3):
        start = time.monotonic()
        result = call()
        spent_s.append(time.monotonic() - start)
    return result, min(spent_s)
