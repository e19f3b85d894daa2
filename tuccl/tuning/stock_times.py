"""Stock NCCL's times of all keys: what everything else in a run is held against.

They are taken at the beginning, in the first start of the workers, and once more at the end, so
that the machine of the end is held against that of the beginning. Where the two differ much, or the
samples of the first start, entries have to outlast several starts (`tuccl.tuning.start_check`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, stdev

from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.trials.config import STOCK, Task
from tuccl.tuning.sample_statistics import interquartile_mean
from tuccl.tuning.spending import Spending
from tuccl.words.progress import Progress

REPEATS = 9
"""At the beginning: every profile is held against them."""
REPEATS_AGAIN = 3
_MUCH = 0.02
"""Relative difference of the median key from which on it matters."""


class StockTimes:
    """Takes them, and keeps what they cost."""

    def __init__(self, tasks: Sequence[Task], spending: Spending, progress: Progress) -> None:
        """Nothing measured yet."""
        self.sample_s: dict[Task, float] = {}
        """What one sample of each key takes."""
        self._tasks = tasks
        self._spending = spending
        self._progress = progress

    def begin(self) -> dict[Task, float]:
        """Time every key; the medians in us.

        Raises:
            MeasurementError: Stock NCCL cannot run a key.
        """
        stock_us = {}
        for done, task in enumerate(self._tasks):
            self._progress("stock NCCL", done, len(self._tasks))
            try:
                self._spending.measure(task, STOCK, 1)  # Brings the workers up: no measure of cost.
                before_s = self._spending.spent_s
                measured = self._spending.measure(task, STOCK, REPEATS)
            except ConfigurationFailedError as error:
                raise MeasurementError(f"stock NCCL cannot run {task.name}: {error}") from error
            stock_us[task] = median(measured.samples_us)
            self.sample_s[task] = (self._spending.spent_s - before_s) / (REPEATS - 1)
        self._progress("stock NCCL", len(self._tasks), len(self._tasks))
        return stock_us

    def again(self) -> None:
        """Time every key once more."""
        for done, task in enumerate(self._tasks):
            self._progress("stock NCCL again", done, len(self._tasks))
            repeats = self._spending.asked(task, STOCK) + REPEATS_AGAIN
            self._spending.measure(task, STOCK, repeats)
        self._progress("stock NCCL again", len(self._tasks), len(self._tasks))

    def means_us(self) -> dict[Task, float]:
        """Interquartile mean of every key, by all its samples."""
        return {task: interquartile_mean(self._samples_us(task)) for task in self._tasks}

    def is_unsteady(self) -> bool:
        """Whether the samples so far, of one start, differ so much that starts may."""
        return median(stdev(map(math.log, self._samples_us(task))) for task in self._tasks) >= _MUCH

    def has_moved(self) -> bool:
        """Whether the times of the end differ much from those of the beginning."""
        return (
            median(
                abs(math.log(median(samples_us[-REPEATS_AGAIN:]) / median(samples_us[:REPEATS])))
                for samples_us in map(self._samples_us, self._tasks)
            )
            >= _MUCH
        )

    def _samples_us(self, task: Task) -> tuple[float, ...]:
        asked = self._spending.asked(task, STOCK)
        return self._spending.measure(task, STOCK, asked).samples_us
