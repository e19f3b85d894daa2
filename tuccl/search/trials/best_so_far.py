"""`KeySoFar`: what the measurements of one key say before it is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tuccl.search.trials.config import STOCK, Config


@dataclass(slots=True)
class KeySoFar:
    """The best configuration of a key so far, and the number of those tried.

    A configuration counts with the median of its samples, so that the best so far may become slower
    when it is measured again. It is the least of many noisy times: a decision takes fresh samples.
    """

    counts_schedules: bool = True
    """Whether a job runs schedules; else they are tried and never the best."""
    times_us: dict[Config, float] = field(default_factory=dict)
    """Median times by configuration."""
    failed: set[Config] = field(default_factory=set)
    best: Config | None = None

    def note(self, config: Config, samples_us: Sequence[float]) -> None:
        """Take all samples of a configuration so far."""
        if not samples_us:
            return
        time_us, before_us = median(samples_us), self.best_us
        self.times_us[config] = time_us
        if not self._counts(config):
            return
        if before_us is None or time_us < before_us:
            self.best = config
        elif config == self.best:
            self._search()

    def fail(self, config: Config) -> None:
        """Take note that a configuration cannot run, whatever its samples were."""
        self.failed.add(config)
        if self.times_us.pop(config, None) is not None and config == self.best:
            self._search()

    def _counts(self, config: Config) -> bool:
        return self.counts_schedules or not config.is_schedule

    def _search(self) -> None:
        counted = filter(self._counts, self.times_us)
        self.best = min(counted, key=self.times_us.__getitem__, default=None)

    @property
    def tried(self) -> int:
        """Number of configurations that were measured or failed."""
        return len(self.times_us | dict.fromkeys(self.failed))

    @property
    def best_us(self) -> float | None:
        """Time of the best so far."""
        return None if self.best is None else self.times_us[self.best]

    @property
    def stock_us(self) -> float | None:
        """Stock NCCL's time."""
        return self.times_us.get(STOCK)

    @property
    def gain(self) -> float | None:
        """Stock NCCL's time over that of the best so far; None before both are known."""
        if self.best_us is None or self.stock_us is None:
            return None
        return self.stock_us / self.best_us
