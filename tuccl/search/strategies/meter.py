"""`Meter`: the samples of one search and the seconds that they cost.

A strategy asks the meter for measurements and never the backend, so that every strategy is counted
alike: a paused configuration resumes with the samples it has, a failed one is infinitely slow and
is not asked for again, and the strategy is stopped when the seconds are spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import nsmallest
from statistics import median

from tuccl.errors import BudgetSpentError, ConfigurationFailedError
from tuccl.search.statistics.moderation import PooledDeviation
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.bill import Bill
from tuccl.search.trials.config import Config
from tuccl.search.trials.events import Watch, unwatched

Measure = Callable[[Config, int], Measured]
"""`measure(config, repeats)`: the first `repeats` samples and what taking those cost, earlier calls
included; fewer samples when more are not worth their time; raises `ConfigurationFailedError`.
`MeasurementLog.measure` of one task is one."""


class Meter(Bill[Config]):
    """Samples that one search has measured, and their cost.

    `limit_s` ends the strategy; the final choice may go on to a later limit.
    """

    def __init__(
        self,
        measure: Measure,
        max_repeats: int,
        budget_s: float = math.inf,
        watch: Watch = unwatched,
    ) -> None:
        """A meter at zero.

        Args:
            measure: Takes samples.
            max_repeats: Samples of a configuration at full budget.
            budget_s: Seconds that may be spent.
            watch: Receives events of the strategy.
        """
        super().__init__(budget_s)
        self.max_repeats = max_repeats
        self.watch = watch
        self.failures: dict[Config, str] = {}
        self._measure = measure
        self._samples: dict[Config, tuple[float, ...]] = {}
        self._time_us: dict[Config, float] = {}
        self._cut_short: set[Config] = set()
        self._deviation = PooledDeviation()

    def reach(self, config: Config, repeats: int) -> float:
        """Take samples until a configuration has so many.

        Returns:
            Median of its samples in us; infinite if it cannot run.

        Raises:
            BudgetSpentError: The samples would cost more than is left; nothing was measured.
            MeasurementError: The backend cannot go on.
        """
        if not self.settled(config, repeats):
            if not self.affords(config, repeats):
                raise BudgetSpentError(f"{self.spent_s:.3f} of {self.limit_s:.3f} s are spent")
            self._take(config, repeats)
        return self.time_us(config)

    def affords(self, config: Config, repeats: int) -> bool:
        """Whether the seconds left cover it, as far as earlier samples show."""
        known = self.count(config)
        per_sample_s = self.paid_s(config) / known if known else 0.0
        return self.spent_s < self.limit_s and (
            self.spent_s + (repeats - known) * per_sample_s <= self.limit_s
        )

    def settled(self, config: Config, repeats: int) -> bool:
        """Whether asking for so many samples would bring no new one."""
        return self.count(config) >= repeats or config in self.failures or config in self._cut_short

    def time_us(self, config: Config) -> float:
        """Median of the samples so far; infinite for what failed or was not measured."""
        return self._time_us.get(config, math.inf)

    def count(self, config: Config) -> int:
        """Samples so far."""
        return len(self._samples.get(config, ()))

    @property
    def configs(self) -> list[Config]:
        """Configurations with samples, in the order of their first one."""
        return list(self._time_us)

    @property
    def tried(self) -> int:
        """Configurations that were measured or failed."""
        return len(self._time_us) + len(self.failures)

    @property
    def repeats(self) -> int:
        """All samples."""
        return sum(map(len, self._samples.values()))

    @property
    def best_us(self) -> float:
        """Fastest time of all."""
        return min(self._time_us.values(), default=math.inf)

    def best(self, count: int) -> list[Config]:
        """The `count` fastest, fastest first; ties go to the smaller value."""
        return nsmallest(count, self._time_us, key=lambda config: (self._time_us[config], config))

    def error(self, repeats: int) -> float:
        """Relative standard error of a median of `repeats` samples."""
        return self._deviation.error(repeats)

    def bound_us(self, config: Config, errors: float) -> float:
        """The median plus `errors` standard errors; negative ones give a lower bound."""
        error = self.error(max(1, self.count(config)))
        return self.time_us(config) * math.exp(errors * error)

    def _take(self, config: Config, repeats: int) -> None:
        try:
            measured = self._measure(config, repeats)
        except ConfigurationFailedError as error:
            self.book_failure(config, error.seconds)
            self.failures[config] = str(error)
            self._time_us.pop(config, None)
            return
        self.book(config, measured.seconds)
        self._deviation = self._deviation.replacing(
            self._samples.get(config, ()), measured.samples_us
        )
        self._samples[config] = measured.samples_us
        if len(measured.samples_us) < repeats:
            self._cut_short.add(config)
        self._time_us[config] = median(measured.samples_us)
