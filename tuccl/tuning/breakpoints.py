"""Borders between keys: the sizes at which the winner changes, between the sizes that were tuned.

Sizes are tuned in steps. Where the winners of two neighbours differ, bisection on a logarithmic
scale locates the size from which the larger size's winner is faster: both are measured in turn at
the middle, and the middle becomes an end. Where neighbours agree the border has no effect, and
nothing is measured. The two ends of a ladder reach half a step beyond it.

NCCL's own choice is measured at the middle, too, unless it is one of the two. If it is faster than
both, as where it changes its protocol between the sizes, two borders are located: calls between
them are left to NCCL.

The sizes of a workload may lie far apart. Each key has a reach then, beyond which NCCL decides:
nothing is known there about either winner.

Winners may change after borders were located. Comparisons are kept; a new comparison takes fresh
samples of both calls, because older samples may be of another start of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isqrt
from statistics import median

from lookup_tables.lookup import MAX_SIZE_BYTES
from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.tuning.run_keys import ladder_of
from tuccl.tuning.spending import Fresh

_HALVINGS = 2
"""A border is known to a quarter of a step."""
_TURNS = 5
_NEW_WINNERS = 0.25
"""Share of the upper limit that is reserved in any case for winners that are new."""
_Rounds = Mapping[Config, Sequence[float]]
_GRAIN_BYTES = 16
"""Granularity per rank: NCCL's widest access, so that no size needs special treatment in NCCL."""


def seconds(all_keys_s: float) -> float:
    """Upper limit of the machine time that the borders take.

    Args:
        all_keys_s: Seconds of one sample of every key, in total.
    """
    return all_keys_s * _HALVINGS * _TURNS * 3


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
    own: Config = STOCK
    """See `ranges`."""
    is_whole: Callable[[Task], bool] = lambda _: False
    """See `ranges`."""
    _taken: dict[tuple[Task, tuple[Config, ...]], _Rounds | None] = field(default_factory=dict)
    """Times that were taken in turn; None where one of them cannot run."""

    def ranges(
        self,
        winners: Mapping[Task, Config],
        own: Config = STOCK,
        is_whole: Callable[[Task], bool] = lambda _: False,
    ) -> dict[Task, tuple[int, int]]:
        """Inclusive byte range of each key.

        Args:
            winners: The call that runs for each key, NCCL's own choice included.
            own: NCCL's own choice under the profile of the winners.
            is_whole: Whether the keys like this one serve all sizes together, none by NCCL's own
                choice.
        """
        self.own, self.is_whole = own, is_whole
        ranges: dict[Task, tuple[int, int]] = {}
        for ladder in _ladders(list(winners)):
            if self.reach is not None and not is_whole(ladder[0]):
                ranges |= self._within_reach(ladder, self.reach, winners)
                continue
            borders = [
                self.borders(small, large, winners[small], winners[large])
                for small, large in pairwise(ladder)
            ]
            sizes = [task.size_bytes for task in ladder]
            middles = [isqrt(a * b) for a, b in pairwise(sizes)]
            first = sizes[0] ** 2 // middles[0] if middles else ladder[0].called_bytes
            last = sizes[-1] ** 2 // middles[-1] if middles else sizes[-1]
            if is_whole(ladder[0]):
                first, last = 1, MAX_SIZE_BYTES
            starts = [first, *(start for _, start in borders)]
            ends = [*(end for end, _ in borders), last]
            ranges |= zip(ladder, zip(starts, ends, strict=True), strict=True)
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
                border = self.borders(small, large, winners[small], winners[large])
                end, start = min(end, border[0]), max(start, border[1])
            ends.append(end)
            starts.append(start)
        ends.append(reach[ladder[-1]][1])
        return dict(zip(ladder, zip(starts, ends, strict=True), strict=True))

    def borders(
        self,
        small: Task,
        large: Task,
        small_wins: Config,
        large_wins: Config,
        halvings: int = _HALVINGS,
    ) -> tuple[int, int]:
        """Return the largest size of the smaller key and the smallest of its larger neighbour.

        Calls between them are left to NCCL.
        """
        low, high = small.size_bytes, large.size_bytes
        for left in reversed(range(halvings if small_wins != large_wins else 0)):
            middle = _whole(isqrt(low * high), small.shape.ranks)
            if not low < middle < high:
                break
            task = replace(small, size_bytes=middle)
            fastest = self._fastest(task, small_wins, large_wins)
            if fastest is None:
                break
            if fastest not in (small_wins, large_wins):
                below, above = (replace(small, size_bytes=size) for size in (low, high))
                end, _ = self.borders(below, task, small_wins, fastest, max(1, left))
                _, start = self.borders(task, above, fastest, large_wins, max(1, left))
                return end, start
            low, high = (middle, high) if fastest == small_wins else (low, middle)
        border = isqrt(low * high)
        return border, border + 1

    def _fastest(self, task: Task, small_wins: Config, large_wins: Config) -> Config | None:
        """Return the fastest of the two and NCCL's own choice; None if either cannot run.

        NCCL's own choice comes first, so that a replay whose record lacks it compares the others
        alone, with the samples that were recorded.
        """
        both = (small_wins, large_wins)
        configs = both if self.is_whole(task) else tuple(dict.fromkeys((self.own, *both)))
        rounds = self._rounds(task, configs) or self._rounds(task, both)
        if rounds is None:
            return None
        best = large_wins if _ratio(rounds, small_wins, large_wins) > 1.0 else small_wins
        return self.own if self.own in rounds and _ratio(rounds, best, self.own) > 1.0 else best

    def _rounds(self, task: Task, configs: tuple[Config, ...]) -> _Rounds | None:
        """Return times that are taken in turn, and measured once; None if a call cannot run."""
        compared = task, configs
        if compared not in self._taken:
            try:
                turns = [
                    [self.fresh(task, config, 1)[0] for config in configs] for _ in range(_TURNS)
                ]
                self._taken[compared] = dict(zip(configs, zip(*turns, strict=True), strict=True))
            except ConfigurationFailedError:
                self._taken[compared] = None
        return self._taken[compared]


def _ratio(rounds: _Rounds, config: Config, other: Config) -> float:
    """Return the median ratio of two times."""
    return median(a / b for a, b in zip(rounds[config], rounds[other], strict=True))


def _whole(size_bytes: int, ranks: int) -> int:
    grain = _GRAIN_BYTES * ranks
    return size_bytes // grain * grain


def _ladders(tasks: Sequence[Task]) -> list[list[Task]]:
    """Keys of one operation, shape and placement, by size."""
    ladders: dict[object, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: (task.operation, task.shape, task.size_bytes)):
        ladders.setdefault(ladder_of(task), []).append(task)
    return list(ladders.values())
