"""Where one winner gives way to the next, between the sizes that were tuned.

Sizes are tuned in steps; where the winners of two neighbours differ, the size at which the larger
one's winner becomes the faster is located by bisection on a logarithmic scale: both are measured in
turn at the middle, and the middle becomes an end. Where neighbours agree nothing is measured: the
border between them means nothing. The two ends of a ladder reach half a step beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isqrt
from statistics import median

from tuccl.errors import ConfigurationFailedError
from tuccl.profile_visits import Measure
from tuccl.search.config import Config, Task

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


def located_ranges(winners: Mapping[Task, Config], measure: Measure) -> dict[Task, tuple[int, int]]:
    """Inclusive byte range of each key.

    Args:
        winners: By key what runs there, NCCL's own choice included.
        measure: Gives samples, also of sizes between the keys'.
    """
    ranges: dict[Task, tuple[int, int]] = {}
    for ladder in _ladders(list(winners)):
        borders = [
            border(small, large, winners[small], winners[large], measure)
            for small, large in pairwise(ladder)
        ]
        sizes = [task.size_bytes for task in ladder]
        middles = [isqrt(a * b) for a, b in pairwise(sizes)]
        first = sizes[0] ** 2 // middles[0] if middles else sizes[0]
        last = sizes[-1] ** 2 // middles[-1] if middles else sizes[-1]
        starts = [first, *(end + 1 for end in borders)]
        ranges |= zip(ladder, zip(starts, [*borders, last], strict=True), strict=True)
    return ranges


def border(
    small: Task, large: Task, small_wins: Config, large_wins: Config, measure: Measure
) -> int:
    """The largest size that belongs to the smaller of two neighbouring keys."""
    low, high = small.size_bytes, large.size_bytes
    if small_wins == large_wins:
        return isqrt(low * high)
    for _ in range(_HALVINGS):
        middle = _whole(isqrt(low * high), small.shape.ranks)
        if not low < middle < high:
            break
        task = replace(small, size_bytes=middle)
        try:
            ratio = _ratio(task, small_wins, large_wins, measure)
        except ConfigurationFailedError:
            break
        low, high = (middle, high) if ratio <= 1.0 else (low, middle)
    return isqrt(low * high)


def _ratio(task: Task, one: Config, other: Config, measure: Measure) -> float:
    """Median over pairs, taken in turn, of the one's time over the other's."""
    for repeats in range(1, _PAIRS + 1):
        of_one = measure(task, one, repeats).samples_us
        of_other = measure(task, other, repeats).samples_us
    return median(a / b for a, b in zip(of_one, of_other, strict=True))


def _whole(size_bytes: int, ranks: int) -> int:
    grain = _GRAIN_BYTES * ranks
    return size_bytes // grain * grain


def _ladders(tasks: Sequence[Task]) -> list[list[Task]]:
    """Keys of one operation and shape, by size."""
    found: dict[object, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: (task.operation, task.shape, task.size_bytes)):
        found.setdefault((task.operation, task.shape), []).append(task)
    return list(found.values())
