"""Calls of trainings beside their computation: which those are, and what a process profile costs.

Calls of 16 MB and more are timed beside a computation, too: what is fastest alone may take
multiprocessors that the computation needs, so that both together end later. The computation takes
twice as long as stock NCCL's call alone, and so outlasts what is compared.

A process profile changes such calls without an entry. So the race selects none under which they end
later, together with the computation, than those of stock NCCL: jobs with the profile alone and jobs
of stock NCCL are started in turn. Rounds go on where they look slower and do not prove it, while
the budget pays for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32

from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.engines.job import LAUNCHES, WARM_UP_LAUNCHES, turn_order
from tuccl.reports.ratios import MeasuredGain, key_gains, mean_gain
from tuccl.search.trials.backend import JobCall, JobTable, JobTimes
from tuccl.search.trials.config import STOCK, ProcessProfile, Task
from tuccl.tuning.settings import RunSettings

_OVERLAPPING_BYTES = 16 << 20
"""Size from which calls are timed beside a computation, too: DDP's gradients go in calls of 25 MiB
(bucket_cap_mb of PyTorch), and FSDP's parameters in larger ones."""
COMPUTATION = 2.0
"""Time of the computation over that of stock NCCL's call alone."""
_LEAST = 0.99
"""Ratio to stock NCCL from which a profile costs the computation nothing, as far as rounds tell."""
ROUNDS, _MOST_ROUNDS = 2, 4
"""Rounds of jobs: one does not show how much they differ."""
_FEW = 2
"""Fewest launches of a call in a job, an even number as in `tuccl.tuning.confirmation`."""
_CALL_S = 0.05
"""Seconds that a call's launches in a job may take, if that allows the fewest."""
TimeJob = Callable[[Mapping[JobCall, int], JobTable, int], JobTimes]
"""Times calls in a job, by its table and its number among those of this table."""


def may_overlap(task: Task, settings: RunSettings) -> bool:
    """Whether jobs time a key beside a computation, too, if the table changes what it runs.

    Not if the run itself times it so, or its user wants no computation, or it is too small for a
    training to hide it.
    """
    is_decided = settings.options.alone or settings.timing.computation_us(task) > 0.0
    return not is_decided and task.size_bytes >= _OVERLAPPING_BYTES


def launches_in_job(sample_s: float) -> int:
    """Return how often a job launches a call, of which a sample takes so many seconds."""
    if sample_s <= 0.0:
        return LAUNCHES
    return max(_FEW, min(LAUNCHES, int(_CALL_S / sample_s) // 2 * 2))


def seconds_in_job(sample_s: float) -> float:
    """Return the seconds of a call in a job, of which a sample takes so many."""
    return (launches_in_job(sample_s) + WARM_UP_LAUNCHES) * sample_s


@dataclass(frozen=True, slots=True)
class ProfileCost:
    """Times calls beside their computation under profiles."""

    launches: Mapping[JobCall, int]
    time_job: TimeJob
    round_s: float = 0.0
    """Seconds of a round: a job with the profile, and one of stock NCCL."""
    pays: Callable[[float], bool] = lambda _: True
    """Whether the budget pays for so many seconds."""

    @classmethod
    def of(
        cls,
        stock_us: Mapping[Task, float],
        sample_s: Mapping[Task, float],
        restart_s: float,
        time_job: TimeJob,
        pays: Callable[[float], bool],
    ) -> ProfileCost:
        """Take the calls of these keys.

        Args:
            stock_us: Stock NCCL's time of each key that may overlap.
            sample_s: Seconds of a sample of each of these.
            restart_s: Seconds of a start of the workers.
            time_job: Starts jobs.
            pays: Whether the budget pays for so many seconds.
        """
        if not stock_us:
            return cls({}, time_job)
        beside_s = {task: COMPUTATION * sample_s[task] for task in stock_us}
        launches = {
            JobCall(task, float(round(COMPUTATION * own_us))): launches_in_job(beside_s[task])
            for task, own_us in stock_us.items()
        }
        round_s = 2 * (restart_s + sum(map(seconds_in_job, beside_s.values())))
        return cls(launches, time_job, round_s, pays)

    @property
    def seconds(self) -> float:
        """Seconds of the fewest rounds that show what a profile costs; 0: nothing is timed."""
        return ROUNDS * self.round_s

    def can_be_timed(self) -> bool:
        """Whether the budget pays for a profile's fewest rounds."""
        return self.pays(self.seconds)

    def lateness(self, profile: ProcessProfile) -> MeasuredGain | None:
        """Return the mean gain of computation and call where jobs lose by a profile.

        Return None if they do not lose, if the jobs did not run, or if there are no such calls.
        """
        if not self.launches:
            return None
        own = JobTable.bare(profile)
        # With jobs of its own for each profile, so that both are started in turn.
        stock = replace(own, name=f"{crc32(own.name.encode()):08x}", profile=STOCK.profile)
        stock_us: dict[JobCall, list[float]] = defaultdict(list)
        own_us: dict[JobCall, list[float]] = defaultdict(list)
        for number in range(_MOST_ROUNDS):
            try:
                for table, times_us in turn_order(((stock, stock_us), (own, own_us)), number):
                    for call, time_us in self.time_job(self.launches, table, number).times_us:
                        times_us[call].append(time_us)
            except ConfigurationFailedError:
                return None  # What is loaded is timed again with the whole table.
            if number + 1 >= ROUNDS:
                mean, gains = mean_gain(stock_us, own_us), key_gains(stock_us, own_us)
                if mean.high < 1.0 or any(gain.high < 1.0 for gain in gains.values()):
                    return mean
                if mean.ratio >= _LEAST:
                    return None
                if not self.pays(self.round_s):
                    break
        return mean
