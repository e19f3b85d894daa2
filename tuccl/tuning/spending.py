"""`Spending`: the seconds of the machine that a whole run has used, against its budget.

Every measurement of a run passes here on its way to the log. What the log held already counts too,
at the cost that it had, so a run that continues decides as one that was never stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tuccl.errors import ConfigurationFailedError
from tuccl.trials.backend import Measured
from tuccl.trials.config import Config, ProcessProfile, Task
from tuccl.workspace.measurement_log import MeasurementLog

Fresh = Callable[[Task, Config, int], Sequence[float]]
"""`Spending.fresh` alone: so many samples, in us, that nobody was given before."""


class Spending:
    """Counts what measurements cost."""

    def __init__(self, log: MeasurementLog, budget_s: float = math.inf) -> None:
        """Nothing spent.

        Args:
            log: Measures and remembers.
            budget_s: What may be spent; nothing is refused here, whoever plans asks `left_s`.
        """
        self.budget_s = budget_s
        self.spent_s = 0.0
        self.restart_s = 0.0
        """What another process profile costs, as known by the latest measurement."""
        self._log = log
        self._seconds: dict[tuple[Task, Config], float] = {}
        self._asked: dict[tuple[Task, Config], int] = {}
        self._up = ProcessProfile()
        """Profile that the latest measurement needed; schedules need none of their own."""
        self._restarts_s: dict[tuple[Task, Config], float] = {}
        """What of the seconds of a configuration went into starting workers."""
        self._failed: set[tuple[Task, Config]] = set()
        """What failed, which is paid for once."""

    @property
    def left_s(self) -> float:
        """What is left of the budget, at least 0."""
        return max(0.0, self.budget_s - self.spent_s)

    def measure(self, task: Task, config: Config, repeats: int) -> Measured:
        """The first `repeats` samples; see `MeasurementLog.measure`."""
        try:
            measured = self._log.measure(task, config, repeats)
        except ConfigurationFailedError as error:
            if (task, config) not in self._failed:
                self.spent_s += error.seconds
                self._failed.add((task, config))
            raise
        self._asked[task, config] = max(repeats, self.asked(task, config))
        before = self._seconds.get((task, config), 0.0)
        if measured.seconds > before:
            self.spent_s += measured.seconds - before
            self._note_restart(task, config, measured.seconds - before, measured.restart_s)
            self._seconds[task, config] = measured.seconds
            self.restart_s = measured.restart_s
        return measured

    def measure_running(self, task: Task, config: Config, repeats: int) -> Measured:
        """As `measure`, with the seconds that it takes where the workers are up already.

        For a search under one profile: whichever configuration was the first to need the workers,
        its samples are no dearer than others'.
        """
        measured = self.measure(task, config, repeats)
        restarts_s = self._restarts_s.get((task, config), 0.0)
        return replace(measured, seconds=max(0.0, measured.seconds - restarts_s))

    def fresh(self, task: Task, config: Config, count: int) -> tuple[float, ...]:
        """So many samples that nobody was given before.

        Raises:
            ConfigurationFailedError: also where the backend cuts short what is far too slow.
        """
        before = self.asked(task, config)
        samples = self.measure(task, config, before + count).samples_us
        if len(samples) < before + count:
            raise ConfigurationFailedError("too slow to be measured on")
        return samples[before:]

    def asked(self, task: Task, config: Config) -> int:
        """How many samples were given out in this run."""
        return self._asked.get((task, config), 0)

    def is_right(self, task: Task, config: Config) -> bool:
        """Whether a call runs, and its data is what it should be; see `MeasurementLog.check`."""
        try:
            self._log.check(task, config)
        except ConfigurationFailedError:
            return False
        return True

    def _note_restart(self, task: Task, config: Config, seconds: float, restart_s: float) -> None:
        if not config.is_schedule and config.profile != self._up:
            known_s = self._restarts_s.get((task, config), 0.0)
            self._restarts_s[task, config] = known_s + min(seconds, restart_s)
            self._up = config.profile
