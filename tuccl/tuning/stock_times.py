"""Stock NCCL's times of all keys, the reference of a run.

They are taken at the beginning, in the first start of the workers, and once more at the end, which
shows whether the machine changed in between. Where the two differ much, or the samples of the first
start among themselves, entries are confirmed over several starts (`tuccl.tuning.confirmation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.search.statistics import steadiness
from tuccl.search.statistics.estimators import interquartile_mean
from tuccl.search.statistics.moderation import MeanError
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.events import Progress
from tuccl.tuning.spending import Spending

REPEATS = 9
"""Samples per key at the beginning; every profile is compared with them."""
REPEATS_AGAIN = 3
"""Samples per key at the end."""


@dataclass
class StockTimes:
    """Takes stock NCCL's times, and keeps their cost."""

    tasks: Sequence[Task]
    spending: Spending
    progress: Progress
    sample_s: dict[Task, float] = field(default_factory=dict)
    """Seconds that a sample of each key takes."""
    faults: dict[Task, str] = field(default_factory=dict)
    """What is wrong with stock NCCL's own data, of the smallest size of each reduction."""

    def begin(self) -> dict[Task, float]:
        """Time every key, and return the medians in us.

        Raises:
            MeasurementError: Stock NCCL cannot run a key.
        """
        stock_us = {}
        for done, task in enumerate(self.tasks):
            self.progress("stock NCCL", done, len(self.tasks))
            try:
                self.spending.measure(task, STOCK, 1)  # Starts the workers; not in the cost.
                before_s = self.spending.spent_s
                measured = self.spending.measure(task, STOCK, REPEATS)
            except ConfigurationFailedError as error:
                raise MeasurementError(
                    f"stock NCCL cannot run {task.full_name}: {error}"
                ) from error
            stock_us[task] = median(measured.samples_us)
            self.sample_s[task] = (self.spending.spent_s - before_s) / (REPEATS - 1)
        self._check()
        self.progress("stock NCCL", len(self.tasks), len(self.tasks))
        return stock_us

    def _check(self) -> None:
        """Check the data of NCCL's own choice, which remains the reference if they are wrong."""
        smallest = {
            (task.operation, task.shape): task
            for task in sorted(self.tasks, reverse=True)
            if task.operation.reduces
        }
        found = {task: self.spending.fault(task, STOCK) for task in smallest.values()}
        self.faults = {task: fault for task, fault in sorted(found.items()) if fault}

    def again(self) -> None:
        """Time every key once more."""
        for done, task in enumerate(self.tasks):
            self.progress("stock NCCL again", done, len(self.tasks))
            repeats = self.spending.asked(task, STOCK) + REPEATS_AGAIN
            self.spending.measure(task, STOCK, repeats)
        self.progress("stock NCCL again", len(self.tasks), len(self.tasks))

    def means_us(self) -> dict[Task, float]:
        """Interquartile mean of all samples of every key."""
        return {task: interquartile_mean(self._samples_us(task)) for task in self.tasks}

    def is_unsteady(self) -> bool:
        """Whether the samples of the first start differ so much that starts may differ too."""
        return steadiness.is_unsteady([self._samples_us(task) for task in self.tasks])

    def moved_shapes(self) -> set[Shape]:
        """Communicator shapes whose times of the end differ much from those of the beginning."""
        return {shape for shape in self._shapes if steadiness.has_moved(*self._ends(shape))}

    def between_starts(self) -> MeanError:
        """Error of one start's ratio, estimated from the times of the beginning and the end."""
        return steadiness.between_starts(*self._ends())

    def between_starts_by_shape(self) -> dict[Shape, MeanError]:
        """Return the same for each communicator shape, or that of all keys if it is larger.

        The keys of one shape are few: of processes that run a call in one of two modes, they may
        all have been in the same mode twice.
        """
        of_all = self.between_starts()
        of_shapes = {shape: steadiness.between_starts(*self._ends(shape)) for shape in self._shapes}
        return {
            shape: max(of_all, error, key=lambda each: each.error)
            for shape, error in of_shapes.items()
        }

    @property
    def _shapes(self) -> tuple[Shape, ...]:
        return tuple(dict.fromkeys(task.shape for task in self.tasks))

    def _ends(
        self, shape: Shape | None = None
    ) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
        """Samples of the beginning and of the end, of the keys of a shape or of all."""
        tasks = [task for task in self.tasks if shape in (None, task.shape)]
        samples_us = [self._samples_us(task) for task in tasks]
        return [own[:REPEATS] for own in samples_us], [own[-REPEATS_AGAIN:] for own in samples_us]

    def _samples_us(self, task: Task) -> tuple[float, ...]:
        asked = self.spending.asked(task, STOCK)
        return self.spending.measure(task, STOCK, asked).samples_us
