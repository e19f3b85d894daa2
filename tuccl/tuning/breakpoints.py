"""Where one winner gives way to the next, between the sizes that were tuned.

Sizes are tuned in steps; where the winners of two neighbours differ, the size at which the larger
one's winner becomes the faster is located by bisection on a logarithmic scale: both are measured in
turn at the middle, and the middle becomes an end. Where neighbours agree nothing is measured: the
border between them means nothing. The two ends of a ladder reach half a step beyond it.

Winners may change after borders were located. Then what was compared is remembered, and what was
not gets fresh samples of both calls, because an older one may be of another start of the workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isqrt
from statistics import median

from tuccl.errors import ConfigurationFailedError
from tuccl.trials.config import Config, Task
from tuccl.tuning.spending import Fresh

_HALVINGS = 2
"""A border is known to a quarter of a step."""
_PAIRS = 5
_GRAIN_BYTES = 16
"""Per rank: NCCL's widest access, so that no size is an odd case of its own."""


def seconds(all_keys_s: float) -> float:
    """What locating takes at most.

    Args:
        all_keys_s: What one sample of every key takes, all together.
    """
    return all_keys_s * _HALVINGS * _PAIRS * 2


class Borders:
    """Borders between the keys of a run, and the comparisons that they come from."""

    def __init__(self, fresh: Fresh) -> None:
        """Nothing compared.

        Args:
            fresh: Gives samples, also of sizes between the keys'.
        """
        self._fresh = fresh
        self._ratios: dict[tuple[Task, Config, Config], float | None] = {}
        """Of the one's time over the other's; None where one of them cannot run."""

    def ranges(self, winners: Mapping[Task, Config]) -> dict[Task, tuple[int, int]]:
        """Inclusive byte range of each key.

        Args:
            winners: By key what runs there, NCCL's own choice included.
        """
        ranges: dict[Task, tuple[int, int]] = {}
        for ladder in _ladders(list(winners)):
            borders = [
                self.border(small, large, winners[small], winners[large])
                for small, large in pairwise(ladder)
            ]
            sizes = [task.size_bytes for task in ladder]
            middles = [isqrt(a * b) for a, b in pairwise(sizes)]
            first = sizes[0] ** 2 // middles[0] if middles else sizes[0]
            last = sizes[-1] ** 2 // middles[-1] if middles else sizes[-1]
            starts = [first, *(end + 1 for end in borders)]
            ranges |= zip(ladder, zip(starts, [*borders, last], strict=True), strict=True)
        return ranges

    def border(self, small: Task, large: Task, small_wins: Config, large_wins: Config) -> int:
        """The largest size that belongs to the smaller of two neighbouring keys."""
        low, high = small.size_bytes, large.size_bytes
        if small_wins == large_wins:
            return isqrt(low * high)
        for _ in range(_HALVINGS):
            middle = _whole(isqrt(low * high), small.shape.ranks)
            if not low < middle < high:
                break
            task = replace(small, size_bytes=middle)
            ratio = self._ratio(task, small_wins, large_wins)
            if ratio is None:
                break
            low, high = (middle, high) if ratio <= 1.0 else (low, middle)
        return isqrt(low * high)

    def _ratio(self, task: Task, one: Config, other: Config) -> float | None:
        """What a comparison showed, which is made once."""
        compared = task, one, other
        if compared not in self._ratios:
            try:
                self._ratios[compared] = self._compare(*compared)
            except ConfigurationFailedError:
                self._ratios[compared] = None
        return self._ratios[compared]

    def _compare(self, task: Task, one: Config, other: Config) -> float:
        """Median over pairs, taken in turn, of the one's time over the other's."""
        pairs = [
            (self._fresh(task, one, 1)[0], self._fresh(task, other, 1)[0]) for _ in range(_PAIRS)
        ]
        return median(a / b for a, b in pairs)


def _whole(size_bytes: int, ranks: int) -> int:
    grain = _GRAIN_BYTES * ranks
    return size_bytes // grain * grain


def _ladders(tasks: Sequence[Task]) -> list[list[Task]]:
    """Keys of one operation and shape, by size."""
    found: dict[object, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: (task.operation, task.shape, task.size_bytes)):
        found.setdefault((task.operation, task.shape), []).append(task)
    return list(found.values())
