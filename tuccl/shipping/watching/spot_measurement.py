"""Spot measurements: a few keys under stock NCCL and under the table, each in new processes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tuccl.measuring.engines.job import Job, Site
from tuccl.measuring.engines.job_processes import STOCK, Contender
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.watching.spot_verdicts import SpotPromise, SpotTimes, WatchedKey, judge

LIMIT_S = 5.0
"""Default time limit of one pair of starts."""
_LEAST_PASSES = 5
"""Passes over the keys that show noise within a start; they are made even beyond the limit."""
_MOST_PASSES = 10


def measure_spots(
    site: Site, table: ShippedTable, promises: Mapping[Task, SpotPromise], limit_s: float
) -> tuple[WatchedKey, ...]:
    """Measure keys, and once more in new processes where any is suspect.

    Args:
        site: Places and conditions of the jobs.
        table: The table.
        promises: The keys, with what the table states.
        limit_s: Time limit of one pair of starts; what is begun comes to its end.

    Raises:
        MeasurementError: A job cannot run.
    """
    first = _look(site, table, promises, limit_s)
    if not any(each.suspicion for each in first):
        return first
    second = _look(site, table, promises, limit_s)
    # The second verdict clears or confirms a suspicion; it raises none, as nothing would follow.
    return tuple(
        each if each.suspicion is None else again for each, again in zip(first, second, strict=True)
    )


def _look(
    site: Site, table: ShippedTable, promises: Mapping[Task, SpotPromise], limit_s: float
) -> tuple[WatchedKey, ...]:
    began = time.monotonic()
    tasks = tuple(promises)
    stock = _time(site, STOCK, tasks, began + limit_s / 2.0)
    own = _time(site, table, tasks, began + limit_s)
    return judge(promises, {task: SpotTimes(stock[task], own[task]) for task in tasks})


def _time(
    site: Site, contender: Contender, tasks: Sequence[Task], deadline: float
) -> dict[Task, list[float]]:
    """Return the times of all keys, pass by pass, in new processes."""
    found: dict[Task, list[float]] = {task: [] for task in tasks}
    with Job(site, contender) as job:
        for number in range(_MOST_PASSES):
            if number >= _LEAST_PASSES and time.monotonic() > deadline:
                break
            for task in tasks:
                found[task].append(job.time_us(task))
    return found
