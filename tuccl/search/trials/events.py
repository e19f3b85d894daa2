"""Events of a run, for whoever shows it while it goes on.

`Progress` shows how far a stage is; events say what happens in it. They change nothing: a run
without a watcher takes the same steps. Those of each measurement are named
tuples, which are made in a fifth of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from tuccl.search.trials.config import Config, ProcessProfile, Task


@dataclass(frozen=True, slots=True)
class AtMost:
    """An upper bound of a total that is not known yet."""

    bound: int


Total = int | AtMost | None
"""How many steps a stage has, if it is known."""


class Progress(Protocol):
    """Shows how far a stage is; it lasts until another begins or all of it is done."""

    def __call__(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        """Show the stage.

        Args:
            stage: Its name.
            done: How many of its steps are over.
            total: How many it has.
            share: Part of the stage's time that is over, 0 to 1, if the steps' times are known.

        Raises:
            ValueError: More is done than there is, less is done than before, or the total changed.
            KeyboardInterrupt: Ctrl-C or SIGTERM was dropped on the way.
        """


def silent(_stage: str, _done: int, _total: Total, /, share: float | None = None) -> None:
    """Show nothing."""


@contextmanager
def unseen() -> Iterator[Progress]:
    """Open a `Progress` that shows nothing."""
    yield silent


@dataclass(frozen=True, slots=True)
class Listener:
    """The receiver of the lines and of the progress of long work."""

    say: Callable[[str], None] = lambda _: None
    """Called with each line for people."""
    progress: Callable[[], AbstractContextManager[Progress]] = unseen
    """Opens the display of progress; it receives events, too, if it is a `Watcher`."""

    def note(self, notes: Iterable[str]) -> None:
        """Say notes, a line each."""
        for note in notes:
            self.say(f"note: {note}")


@dataclass(frozen=True, slots=True)
class RunBegins:
    """A run begins or continues; measurements that it has already are told again."""

    machine: str
    backend: str
    keys: tuple[Task, ...]
    budget_s: float | None
    """Machine time that measuring may take; None means no limit."""
    runs_schedules: bool = True
    """Whether a job runs the schedules that win."""


@dataclass(frozen=True, slots=True)
class SchedulesMade:
    """The schedules that are searched are known."""

    names: Mapping[str, str]
    """By content hash."""


class MeasuringBegins(NamedTuple):
    """A configuration is about to be measured."""

    task: Task
    config: Config
    samples: int
    """Samples that it is to have in total."""


class SamplesTaken(NamedTuple):
    """A configuration has more samples."""

    task: Task
    config: Config
    samples_us: tuple[float, ...]
    """All of its samples."""
    spent_s: float
    """Machine time of the run so far."""


@dataclass(frozen=True, slots=True)
class ConfigurationFailed:
    """A configuration cannot run."""

    task: Task
    config: Config
    spent_s: float
    """Machine time of the run so far."""


@dataclass(frozen=True, slots=True)
class WorkersRestarted:
    """The workers restarted for another process profile."""

    profile: ProcessProfile


@dataclass(frozen=True, slots=True)
class RungBegins:
    """A search measures a batch of configurations, or the best of it longer."""

    part: str
    """Part of the search: `bracket 2 of 4`."""
    rung: int
    """Number of the rung within the batch, from 1 on."""
    rungs: int
    configs: int
    repeats: int
    """Samples that each of the configurations is to have."""


@dataclass(frozen=True, slots=True)
class KeyDecided:
    """The finalists of a key were compared with NCCL's own choice, in turn."""

    task: Task
    winner: Config | None
    """None if nothing was proved faster."""
    time_us: float
    """Time of the winner, or of NCCL's own choice under the process profile."""
    gain: float | None
    """Stock NCCL's time over it, of samples in turn; None if the table has a process profile, under
    which stock NCCL does not run."""


Event = (
    RunBegins
    | SchedulesMade
    | MeasuringBegins
    | SamplesTaken
    | ConfigurationFailed
    | WorkersRestarted
    | RungBegins
    | KeyDecided
)
Watch = Callable[[Event], None]


def unwatched(_event: Event) -> None:
    """Ignore an event."""


@runtime_checkable
class Watcher(Protocol):
    """A `Progress` that takes events, too."""

    def note(self, event: Event) -> None:
        """Take an event; it returns at once, since the run waits for it."""
