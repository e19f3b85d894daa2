"""The measurements of a log in the order in which they were taken, with their running cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuccl.search.trials.config import Config
from tuccl.workspace.measurement_file import read_sound
from tuccl.workspace.measurement_lines import Contents, Recorded


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement, and the state of its configuration after it."""

    seconds: float
    """Seconds of the machine that this and all earlier measurements took."""
    recorded: Recorded

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.recorded.task

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.recorded.config


class _InOrder(Contents):
    """A log that keeps the order of its measurements."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Measurement] = []

    def put(self, recorded: Recorded) -> None:
        """Replace a configuration's record, and note when."""
        super().put(recorded)
        self.taken.append(Measurement(self.bill.spent_s, recorded))


def read_history(path: Path, identity: str) -> Iterator[Measurement]:
    """Yield the measurements of a log up to its first damaged line.

    Args:
        path: The file.
        identity: Identity of the run that it must belong to.

    Raises:
        WorkspaceError: It cannot be read, is of another version or belongs to something else.
    """
    _, *lines = read_sound(path, identity).whole.splitlines() or [b""]
    contents = _InOrder()
    for line in lines:
        contents.take(line)
    yield from contents.taken
