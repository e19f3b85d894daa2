"""`Stage`: the progress of a call, for programs that show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tuccl.search.trials.events import AtMost, Progress, Total


@dataclass(frozen=True, slots=True)
class Stage:
    """Progress of one stage of a call."""

    name: str
    """As `schedules` or `search`; a stage lasts until the next one begins."""
    done: int
    """Steps that are done."""
    total: int | None
    """All steps of the stage; None: not known yet."""
    share: float | None = None
    """Share of the stage's time that has passed, 0 to 1; None: not known."""


OnStage = Callable[[Stage], None] | None
Tell = Callable[[str], None] | None


def unsaid(_line: str) -> None:
    """Drop a line."""


def progress_of(on_stage: OnStage) -> Progress:
    """Return a `Progress` that reports to `on_stage`."""

    def told(stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        if on_stage is not None:
            known = None if isinstance(total, AtMost) else total
            on_stage(Stage(stage, done, known, share))

    return told


@contextmanager
def opened_progress(on_stage: OnStage) -> Iterator[Progress]:
    """Open `progress_of` as a context."""
    yield progress_of(on_stage)
