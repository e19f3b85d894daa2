"""`Progress`: whom long work tells how far it is, however that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AtMost:
    """A total that is not known yet, but not above this."""

    bound: int


Total = int | AtMost | None
"""None: nothing is known."""


class Progress(Protocol):
    """Told how far a stage is; a stage lasts until another begins or all of it is done."""

    def __call__(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        """Show it.

        Args:
            stage: Its name.
            done: How many of its steps are over.
            total: How many it has.
            share: What part of the stage's time is over, where it is known how long steps take
                compared to each other; 0 to 1.

        Raises:
            ValueError: More is done than there is, less is done than before, or the total changed.
            KeyboardInterrupt: Ctrl-C or SIGTERM was dropped on the way.
        """
