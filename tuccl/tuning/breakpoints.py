"""Borders between keys: the sizes at which the winner changes, between the sizes that were tuned.

Sizes are tuned in steps. Where the winners of two neighbours differ, bisection on a logarithmic
scale locates the size from which the larger size's winner is faster: both are measured in turn at
the middle, and the middle becomes an end. Where neighbours agree the border has no effect, and
nothing is measured. The two ends of a ladder reach half a step beyond it.

The sizes of a workload may lie far apart. Each key has a reach then, beyond which NCCL decides:
nothing is known there about either winner.

Winners may change after borders were located. Comparisons are kept; a new comparison takes fresh
samples of both calls, because older samples may be of another start of the workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isqrt
from statistics import median

from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.config import Config, Task
from tuccl.tuning.run_keys import ladder_of
from tuccl.tuning.spending import Fresh

_HALVINGS = 2
"""A border is known to a quarter of a step."""
_PAIRS = 5
_NEW_WINNERS = 0.25
"""Share of the upper limit that is reserved in any case for winners that are new."""
_GRAIN_BYTES = 16
"""Granularity per rank: NCCL's widest access, so that no size needs special treatment in NCCL."""


def seconds(all_keys_s: float) -> float:
    """Upper limit of the machine time that the borders take.

    Args:
        all_keys_s: Seconds of one sample of every key, in total.
    """
    return all_keys_s * _HALVINGS * _PAIRS * 2


def seconds_again(all_keys_s: float, before_s: float) -> float:
    """Machine time to reserve for borders that are located once more, for winners that changed.

    Few winners change, and what was compared is kept: as much as the first time, and at least a
    quarter of the upper limit, as winners may be new.

    Args:
        all_keys_s: As for `seconds`.
        before_s: Seconds that the borders took the first time.
    """
    most_s = seconds(all_keys_s)
    return min(most_s, max(before_s, _NEW_WINNERS * most_s))


@dataclass
class Borders:
    """Borders between the keys of a run, and the comparisons that they come from."""

    fresh: Fresh
    """Takes samples, also at sizes between those of the keys."""
    reach: Mapping[Task, tuple[int, int]] | None = None
    """Smallest and largest size that each key may serve; None: up to its neighbours."""
    _ratios: dict[tuple[Task, Config, Config], float | None] = field(default_factory=dict)
    """Time of the first configuration over that of the second; None where either cannot run."""

    def ranges(self, winners: Mapping[Task, Config]) -> dict[Task, tuple[int, int]]:
        """Inclusive byte range of each key.

        Args:
            winners: The call that runs for each key, NCCL's own choice included.
        """
        ranges: dict[Task, tuple[int, int]] = {}
        for ladder in _ladders(list(winners)):
            if self.reach is not None:
                ranges |= self._within_reach(ladder, self.reach, winners)
                continue
            borders = [
                self.border(small, large, winners[small], winners[large])
                for small, large in pairwise(ladder)
            ]
            sizes = [task.size_bytes for task in ladder]
            middles = [isqrt(a * b) for a, b in pairwise(sizes)]
            first = sizes[0] ** 2 // middles[0] if middles else ladder[0].called_bytes
            last = sizes[-1] ** 2 // middles[-1] if middles else sizes[-1]
            starts = [first, *(end + 1 for end in borders)]
            ranges |= zip(ladder, zip(starts, [*borders, last], strict=True), strict=True)
        return ranges

    def _within_reach(
        self,
        ladder: Sequence[Task],
        reach: Mapping[Task, tuple[int, int]],
        winners: Mapping[Task, Config],
    ) -> dict[Task, tuple[int, int]]:
        """Ranges of neighbouring keys, which leave gaps where no reach covers a size."""
        starts, ends = [reach[ladder[0]][0]], []
        for small, large in pairwise(ladder):
            end, start = reach[small][1], reach[large][0]
            if start <= end:
                border = self.border(small, large, winners[small], winners[large])
                end, start = min(end, border), max(start, border + 1)
            ends.append(end)
            starts.append(start)
        ends.append(reach[ladder[-1]][1])
        return dict(zip(ladder, zip(starts, ends, strict=True), strict=True))

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

    def _ratio(self, task: Task, small_wins: Config, large_wins: Config) -> float | None:
        """Result of a comparison, which is measured once."""
        compared = task, small_wins, large_wins
        if compared not in self._ratios:
            try:
                self._ratios[compared] = self._compare(*compared)
            except ConfigurationFailedError:
                self._ratios[compared] = None
        return self._ratios[compared]

    def _compare(self, task: Task, small_wins: Config, large_wins: Config) -> float:
        """Median ratio of the two times over pairs of samples taken in turn."""
        pairs = [
            (self.fresh(task, small_wins, 1)[0], self.fresh(task, large_wins, 1)[0])
            for _ in range(_PAIRS)
        ]
        return median(a / b for a, b in pairs)


def _whole(size_bytes: int, ranks: int) -> int:
    grain = _GRAIN_BYTES * ranks
    return size_bytes // grain * grain


def _ladders(tasks: Sequence[Task]) -> list[list[Task]]:
    """Keys of one operation, shape and placement, by size."""
    ladders: dict[object, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: (task.operation, task.shape, task.size_bytes)):
        ladders.setdefault(ladder_of(task), []).append(task)
    return list(ladders.values())
