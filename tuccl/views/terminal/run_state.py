"""`RunState`: what is known of a run that goes on, from its progress and its events."""

from __future__ import annotations

from collections.abc import Mapping

from tuccl.search.trials import events
from tuccl.search.trials.best_so_far import KeySoFar
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.events import Total
from tuccl.views.terminal.progress import RunningStage, advanced


class RunState:
    """The stages, the measurement under way, the best of each key so far, and the budget."""

    def __init__(self, began_s: float) -> None:
        """Begin without a stage.

        Args:
            began_s: Beginning of the run, on the clock of all other times.
        """
        self.began_s = began_s
        self.stage: RunningStage | None = None
        self.took_s: dict[str, float] = {}
        """Seconds of the stages that are over, by name."""
        self.run: events.RunBegins | None = None
        self.schedules: Mapping[str, str] = {}
        """Names of schedules by content hash."""
        self.keys: dict[Task, KeySoFar] = {}
        self.decided: dict[Task, events.KeyDecided] = {}
        self.measuring: events.MeasuringBegins | None = None
        self.rung: events.RungBegins | None = None
        """Rung of the search under way; None: no search is."""
        self.profile: ProcessProfile | None = None
        """Process profile of the workers; None: they have not restarted yet."""
        self.restarts = 0
        self.spent_s = 0.0

    def report(self, name: str, done: int, total: Total, share: float | None, now_s: float) -> None:
        """Take a report of progress.

        Raises:
            ValueError: See `Progress`.
        """
        before = self.stage
        self.stage = advanced(before, name, done, total, share, now_s)
        begins = before is None or (before.name, before.began_s) != (name, self.stage.began_s)
        if begins:
            self.rung = self.measuring = None
            if before is not None and not before.is_over:
                self._end(before, now_s)
        if self.stage.is_over and (begins or before is None or not before.is_over):
            self._end(self.stage, now_s)

    def _end(self, stage: RunningStage, now_s: float) -> None:
        self.took_s[stage.name] = self.took_s.get(stage.name, 0.0) + now_s - stage.began_s

    def note(self, event: events.Event) -> None:
        """Take an event."""
        if isinstance(event, events.MeasuringBegins):
            self.measuring = event
        elif isinstance(event, events.SamplesTaken):
            self.spent_s = event.spent_s
            self._key(event.task).note(event.config, event.samples_us)
        elif isinstance(event, events.ConfigurationFailed):
            self.spent_s = event.spent_s
            self._key(event.task).fail(event.config)
        elif isinstance(event, events.RungBegins):
            self.rung = event
        elif isinstance(event, events.WorkersRestarted):
            self.restarts += 1
            self.profile = event.profile
        elif isinstance(event, events.KeyDecided):
            self.decided[event.task] = event
        elif isinstance(event, events.SchedulesMade):
            self.schedules = event.names
        else:
            self.run = event

    def _key(self, task: Task) -> KeySoFar:
        return self.keys.setdefault(task, KeySoFar(self.runs_schedules))

    @property
    def runs_schedules(self) -> bool:
        """Whether a job runs the schedules that win."""
        return self.run is None or self.run.runs_schedules

    def describe(self, config: Config) -> str:
        """Return `ring LL128 ch16`, with the name of a schedule instead of its hash."""
        return config.described(self.schedules)

    def gains(self) -> dict[Task, float]:
        """Stock NCCL's time over that of the decision, or of the best so far before it.

        Schedules count if a job runs them.
        """
        found = {}
        for task in () if self.run is None else self.run.keys:
            key, decided = self.keys.get(task), self.decided.get(task)
            gain = None if key is None else key.gain
            if decided is not None and decided.winner is not None:
                runs = self.runs_schedules or not decided.winner.is_schedule
                decided = decided if runs else None
            if key is not None and key.stock_us is not None and decided is not None:
                gain = decided.gain or key.stock_us / decided.time_us
            if gain is not None:
                found[task] = gain
        return found
