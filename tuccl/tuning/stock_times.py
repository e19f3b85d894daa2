"""Stock NCCL's times of all keys: what everything else in a run is held against.

They are taken at the beginning, in the first start of the workers, and once more at the end, so
that the machine of the end is held against that of the beginning. Where the two differ much, or the
samples of the first start, entries are confirmed over several starts
(`tuccl.tuning.confirmation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.statistics import steadiness
from tuccl.statistics.estimators import interquartile_mean
from tuccl.statistics.pooling import MeanError
from tuccl.trials.config import STOCK, Task
from tuccl.tuning.spending import Spending
from tuccl.words.progress import Progress

REPEATS = 9
"""At the beginning: every profile is held against them."""
REPEATS_AGAIN = 3


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
        return steadiness.is_unsteady([self._samples_us(task) for task in self._tasks])

    def has_moved(self) -> bool:
        """Whether the times of the end differ much from those of the beginning."""
        return steadiness.has_moved(*self._first_and_last())

    def between_starts(self) -> MeanError:
        """How far a ratio of one start may be off others, by the times of beginning and end."""
        return steadiness.between_starts(*self._first_and_last())

    def _first_and_last(self) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
        samples_us = [self._samples_us(task) for task in self._tasks]
        return [one[:REPEATS] for one in samples_us], [one[-REPEATS_AGAIN:] for one in samples_us]

    def _samples_us(self, task: Task) -> tuple[float, ...]:
        asked = self._spending.asked(task, STOCK)
        return self._spending.measure(task, STOCK, asked).samples_us
