"""The time of what is quick, on a machine that may be busy with something else."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def quickest_of_three(call: Callable[[], Result]) -> tuple[Result, float]:
    """What the last call returned, and the seconds of the quickest."""
    spent_s = []
    for _ in range(3):
        start = time.monotonic()
        result = call()
        spent_s.append(time.monotonic() - start)
    return result, min(spent_s)
