"""`Spending`: the machine time that a whole run has used, against its budget.

Every measurement of a run passes here on its way to the log. Measurements that the log already
holds count at their original cost, so a resumed run decides as one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials import events
from tuccl.search.trials.backend import JobCall, JobTable, JobTimes, Measured
from tuccl.search.trials.bill import Bill
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.events import Watch, unwatched
from tuccl.workspace.measurement_log import MeasurementLog

Fresh = Callable[[Task, Config, int], Sequence[float]]
"""`Spending.fresh` alone: this number of samples, in us, none of them returned before."""


class Spending(Bill[tuple[Task, Config] | tuple[str, int]]):
    """Measures, and books the machine time of the measurements."""

    def __init__(
        self, log: MeasurementLog, budget_s: float = math.inf, watch: Watch = unwatched
    ) -> None:
        """Start with nothing spent.

        Args:
            log: Measures, and stores the samples.
            budget_s: Seconds that may be spent; callers check `left_s`.
            watch: Receives an event before and after each measurement.
        """
        super().__init__(budget_s)
        self.restart_s = 0.0
        """Cost of a change of the process profile, as of the latest measurement."""
        self._log = log
        self._watch = watch
        self._asked: dict[tuple[Task, Config], int] = {}
        self._up: ProcessProfile | None = ProcessProfile()
        """Process profile of the running workers; None: they are started anew."""
        self._restarts_s: dict[tuple[Task, Config], float] = {}
        """Part of a configuration's seconds that went into starts of workers."""

    def measure(self, task: Task, config: Config, repeats: int) -> Measured:
        """The first `repeats` samples; see `MeasurementLog.measure`."""
        asked = self.asked(task, config)
        if repeats > asked:
            self._watch(events.MeasuringBegins(task, config, repeats))
        try:
            measured = self._log.measure(task, config, repeats)
        except ConfigurationFailedError as error:
            if self.book_failure((task, config), error.seconds):
                self._watch(events.ConfigurationFailed(task, config, self.spent_s))
            raise
        self._asked[task, config] = max(repeats, asked)
        if more_s := self.book((task, config), measured.seconds):
            self._note_restart(task, config, more_s, measured.restart_s)
            self.restart_s = measured.restart_s
        if repeats > asked:
            self._watch(events.SamplesTaken(task, config, measured.samples_us, self.spent_s))
        return measured

    def measure_running(self, task: Task, config: Config, repeats: int) -> Measured:
        """As `measure`, with the seconds that it takes without starts of workers.

        A search under one profile thus does not charge the start to the configuration that happens
        to need the workers first.
        """
        measured = self.measure(task, config, repeats)
        restarts_s = self._restarts_s.get((task, config), 0.0)
        return replace(measured, seconds=max(0.0, measured.seconds - restarts_s))

    def fresh(self, task: Task, config: Config, count: int) -> tuple[float, ...]:
        """Return `count` samples that no call has returned before.

        Raises:
            ConfigurationFailedError: also where the backend stops a configuration that is far too
                slow.
        """
        before = self.asked(task, config)
        samples = self.measure(task, config, before + count).samples_us
        if len(samples) < before + count:
            raise ConfigurationFailedError("too slow to be measured on")
        return samples[before:]

    def restart(self) -> None:
        """Let the next samples come from a new start; see `MeasurementLog.restart`."""
        self._log.restart()
        self._up = None

    def time_job(self, launches: Mapping[JobCall, int], table: JobTable, number: int) -> JobTimes:
        """Return the times of a job, for which workers end; see `MeasurementLog.time_job`."""
        self._up = None
        try:
            timed = self._log.time_job(launches, table, number)
        except ConfigurationFailedError as error:
            self.book_failure((table.name, number), error.seconds)
            raise
        self.book((table.name, number), timed.seconds)
        return timed

    def asked(self, task: Task, config: Config) -> int:
        """Number of samples returned in this run."""
        return self._asked.get((task, config), 0)

    def is_right(self, task: Task, config: Config) -> bool:
        """Whether a call runs and delivers the right data; see `MeasurementLog.check`."""
        return not self.fault(task, config)

    def fault(self, task: Task, config: Config) -> str:
        """Return why a call does not run or delivers wrong data; empty where it is right."""
        try:
            self._log.check(task, config)
        except ConfigurationFailedError as error:
            return str(error) or "it fails"
        return ""

    def _note_restart(self, task: Task, config: Config, seconds: float, restart_s: float) -> None:
        if config.needs_profile and config.profile != self._up:
            known_s = self._restarts_s.get((task, config), 0.0)
            self._restarts_s[task, config] = known_s + min(seconds, restart_s)
            self._up = config.profile
            self._watch(events.WorkersRestarted(config.profile))
