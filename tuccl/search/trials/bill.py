"""`Bill`: the machine time of measurements, each booked once.

The log has a bill of all measurements that it holds, a run one of those that it used, each search
one of those that it asked for. A measurement of the log counts at what it cost when it was taken,
so a run that continues spends as one that was never stopped.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Bill(Generic[_Item]):
    """Seconds by what they were spent on, against a limit."""

    def __init__(self, limit_s: float = math.inf) -> None:
        """Start with nothing spent; callers keep to the limit, no booking is refused."""
        self.limit_s = limit_s
        self.spent_s = 0.0
        self._paid_s: dict[_Item, float] = {}
        self._failed: set[_Item] = set()

    @property
    def left_s(self) -> float:
        """Seconds below the limit, at least 0."""
        return max(0.0, self.limit_s - self.spent_s)

    def paid_s(self, item: _Item) -> float:
        """Seconds booked for samples of an item."""
        return self._paid_s.get(item, 0.0)

    def book(self, item: _Item, seconds: float) -> float:
        """Book what all samples of an item have cost; return the part that is new."""
        more_s = seconds - self.paid_s(item)
        if more_s <= 0.0:
            return 0.0
        self.spent_s += more_s
        self._paid_s[item] = seconds
        return more_s

    def book_failure(self, item: _Item, seconds: float) -> bool:
        """Book the failed attempt on an item; return False if it was booked before."""
        if item in self._failed:
            return False
        self._failed.add(item)
        self.spent_s += seconds
        return True
