"""Spot measurements: a few keys under stock NCCL and under the table, each in new processes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tuccl.bench.contenders import STOCK, Contender, ShippedTable
from tuccl.bench.job import Job, Site
from tuccl.trials.config import Task
from tuccl.watching.spot_verdicts import Promise, SpotTimes, SpotVerdict, judge

LIMIT_S = 5.0
"""Default time limit of one pair of starts."""
_LEAST_PASSES = 3
"""Passes over the keys that show noise within a start; they are made even beyond the limit."""
_MOST_PASSES = 8


def measure_spots(
    site: Site, table: ShippedTable, promises: Mapping[Task, Promise], limit_s: float
) -> tuple[SpotVerdict, ...]:
    """Measure keys, and the suspect ones once more in new processes.

    Args:
        site: Places and conditions of the jobs.
        table: The table.
        promises: The keys, with what the table states.
        limit_s: Time limit of one pair of starts; what is begun comes to its end.

    Raises:
        MeasurementError: A job cannot run.
    """
    first = _look(site, table, promises, limit_s)
    suspect = {each.task: promises[each.task] for each in first if each.suspicion is not None}
    if not suspect:
        return first
    second = {each.task: each for each in _look(site, table, suspect, limit_s)}
    # Of a key that was looked at twice the second verdict counts, which clears or confirms it.
    return tuple(second.get(each.task, each) for each in first)


def _look(
    site: Site, table: ShippedTable, promises: Mapping[Task, Promise], limit_s: float
) -> tuple[SpotVerdict, ...]:
    began = time.monotonic()
    tasks = tuple(promises)
    stock = _time(site, STOCK, tasks, began + limit_s / 2.0)
    own = _time(site, table, tasks, began + limit_s)
    return tuple(
        judge(task, promises[task], SpotTimes(stock[task], own[task]), len(tasks)) for task in tasks
    )


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
