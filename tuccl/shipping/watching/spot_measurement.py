"""Spot measurements: a few keys under stock NCCL and under the table, each in new processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from tuccl.measuring.engines.job import Job, Site, divisions_of
from tuccl.measuring.engines.job_processes import STOCK
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.watching.pair import Conditions, Pair, Turn
from tuccl.shipping.watching.spot_verdicts import (
    SpotPromise,
    SpotTimes,
    WatchedKey,
    is_settled,
    judge,
)
from tuccl.shipping.watching.stopwatch import Phase, Stopwatch

LIMIT_S = 3.0
"""Default time limit of one pair of starts."""
_LEAST_PASSES = 3
"""Passes over the keys after which the noise within a start may be known well enough."""
_USUAL_PASSES = 5
"""Passes that are made even beyond the limit if it is not."""
_MOST_PASSES = 10


@dataclass(frozen=True)
class Spots:
    """The keys that are measured, and how."""

    promises: Mapping[Task, SpotPromise]
    """The keys, with what the table states."""
    timing: Timing
    limit_s: float
    """Time limit of one pair of starts; what is begun comes to its end."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def measure(self, first: Pair, conditions: Conditions) -> tuple[WatchedKey, ...]:
        """Measure the keys, and once more in new processes where any is suspect.

        Args:
            first: The jobs of the first look, begun or not.
            conditions: Conditions of further jobs.

        Raises:
            MeasurementError: A job cannot run.
        """
        once = self._look(first)
        if not any(each.suspicion for each in once):
            return once
        again = self._look(Pair(conditions))
        # The second verdict clears or confirms a suspicion; it raises none, as nothing would
        # follow.
        return tuple(
            own if own.suspicion is None else other for own, other in zip(once, again, strict=True)
        )

    def _look(self, pair: Pair) -> tuple[WatchedKey, ...]:
        stock: dict[Task, list[float]] = {task: [] for task in self.promises}
        own: dict[Task, list[float]] = {task: [] for task in self.promises}
        with closing(pair):
            for number, turn in enumerate(pair.turns, 1):
                deadline = pair.began + self.limit_s * number / len(pair.turns)
                self._time(turn, deadline, stock, own)
        return judge(
            self.promises, {task: SpotTimes(stock[task], own[task]) for task in self.promises}
        )

    def _time(
        self,
        turn: Turn,
        deadline: float,
        stock: dict[Task, list[float]],
        own: dict[Task, list[float]],
    ) -> None:
        """Time all keys with the jobs of a turn, pass by pass; one job at a time has a call."""
        whole = turn.jobs[0].shape
        site = Site(turn.places, whole, self.timing, (), divisions_of(self.promises, whole))
        with closing(turn):
            turn.begin()
            jobs = [
                (Job(site, each.contender, each), stock if each.contender == STOCK else own)
                for each in turn.jobs
            ]
            for job, _ in jobs:
                job.start()
            self.stopwatch.end(Phase.STARTING)
            for number in range(_MOST_PASSES):
                if number >= _USUAL_PASSES and time.monotonic() > deadline:
                    break
                if number >= _LEAST_PASSES and all(
                    is_settled(self.promises, times_us) for _, times_us in jobs
                ):
                    break
                for job, times_us in jobs:
                    for task in self.promises:
                        times_us[task].append(job.time_us(JobCall(task)))
                self.stopwatch.end(Phase.TIMING if number else Phase.PREPARING)
        self.stopwatch.end(Phase.ENDING)
