"""Keys that a schedule of the executor serves, as a short search before the race shows.

The race holds process profiles to the guaranteed minimum, which counts what a job gets. For a key
that a schedule serves that is the schedule's time, so the race has to know these keys. The search
of schedules therefore begins before it, with a few samples per key, and is continued afterwards. A
schedule serves a key if it delivers the right data and its lower bound is above `CLEAR_GAIN`, with
the deviation that profiles are allowed in one start. Schedules across hosts call NCCL, so each
visit of a profile times them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from tuccl.search.strategies.strategy import SearchResult
from tuccl.search.trials.config import Config, Task
from tuccl.tuning.guaranteed_minimum import KeyRatio
from tuccl.tuning.profile_visits import Measure, ratio_of_schedule

SAMPLES = 60
"""Samples per key, at stock's speed, whose cost a short search may take."""
_TRIED = 2
"""Schedules of a key that are looked at, in case the first is wrong."""


def served_keys(
    found: Mapping[Task, SearchResult],
    stock_us: Mapping[Task, float],
    measure: Measure,
    is_right: Callable[[Task, Config], bool],
) -> dict[Task, KeyRatio]:
    """Ratios of stock NCCL's time over a schedule's, for keys that the schedule serves.

    Args:
        found: Searches of schedules by key.
        stock_us: Stock NCCL's time by key.
        measure: Takes samples.
        is_right: Whether a call delivers the right data.
    """
    served = {}
    for task, result in found.items():
        for ranked in islice(result.ranking, _TRIED):
            key = ratio_of_schedule(task, ranked.config, stock_us[task], measure)
            if key is not None and is_right(task, ranked.config):
                served[task] = key
                break
    return served
