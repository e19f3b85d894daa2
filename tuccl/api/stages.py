"""`Stage`: how far a call is, for whoever wants to show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tuccl.words.progress import AtMost, Progress, Total


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a stage of a call is."""

    name: str
    """As `schedules` or `search`; a stage lasts until another one begins."""
    done: int
    """Steps that are over."""
    total: int | None
    """Steps that it has; None: not known yet."""
    share: float | None = None
    """What part of the stage's time is over, 0 to 1; None: not known."""


OnStage = Callable[[Stage], None] | None
Tell = Callable[[str], None] | None


def unsaid(_line: str) -> None:
    """A line that nobody wants."""


def progress_of(on_stage: OnStage) -> Progress:
    """What the stages tell, told as `Stage`."""

    def told(stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        if on_stage is not None:
            known = None if isinstance(total, AtMost) else total
            on_stage(Stage(stage, done, known, share))

    return told


@contextmanager
def opened_progress(on_stage: OnStage) -> Iterator[Progress]:
    """The same as a block."""
    yield progress_of(on_stage)
