"""The choices of an earlier table, timed beside those of the new one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from tuccl.errors import ConfigurationFailedError
from tuccl.search.strategies.warm import WarmStart
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.tuning.decision import Decision
from tuccl.tuning.results import AgainstBefore
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import StockTimes

_SAMPLES = 9
"""Samples of a choice of an earlier table that the new one is compared with."""


@dataclass(frozen=True)
class ComparisonBefore:
    """Times the earlier table's choices where the budget allows it."""

    earlier: WarmStart | None
    """The earlier table; None: there is none, and nothing is compared."""
    spending: Spending
    """Takes the samples and counts what they cost."""
    stock: StockTimes
    """Costs of a sample of each key."""
    jobs_run_schedules: bool
    """Whether a winning schedule is what a job runs."""

    @property
    def seconds(self) -> float:
        """Seconds that it costs; 0 where nothing is compared."""
        if self.earlier is None:
            return 0.0
        return self.spending.restart_s + _SAMPLES * sum(self.stock.sample_s.values())

    def times(
        self, confirmed: Mapping[Task, Decision], profile: ProcessProfile
    ) -> tuple[AgainstBefore, ...]:
        """Return the times of each key's choices, before and now, as far as they run.

        Args:
            confirmed: What was decided for each key now.
            profile: The process profile of the new table.
        """
        earlier = self.earlier
        if earlier is None or self.spending.left_s < self.seconds:
            return ()
        found = []
        for task, decision in confirmed.items():
            now = decision.winner if self.jobs_run_schedules else None
            if now is None and decision.builtin is not None:
                now = decision.builtin.config
            now = now or profile.default
            for before in (*earlier.before.get(task, ()), earlier.profile.default):
                with suppress(ConfigurationFailedError):
                    before_us, now_us = (self._median_us(task, call) for call in (before, now))
                    found.append(AgainstBefore(task, before, before_us, now, now_us))
                    break
        return tuple(found)

    def _median_us(self, task: Task, config: Config) -> float:
        repeats = max(_SAMPLES, self.spending.asked(task, config))
        return median(self.spending.measure(task, config, repeats).samples_us)
