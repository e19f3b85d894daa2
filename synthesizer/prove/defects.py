"""Defects of schedules, and their descriptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DefectKind(StrEnum):
    """The kinds of defects, in the order of the verifier's checks."""

    STRUCTURE = "structure"
    """Ids, peers, offsets, counts or dependences that cannot be executed."""
    CONNECTION = "connection"
    """The two sides of a connection do not match."""
    INPUT_OVERWRITTEN = "input_overwritten"
    """An out-of-place schedule writes to the caller's send buffer."""
    DEADLOCK = "deadlock"
    RACE = "race"
    UNINITIALISED = "uninitialised"
    """A step reads a chunk that no step has written."""
    WRONG_RESULT = "wrong_result"
    NO_POSTCONDITION = "no_postcondition"
    """The operation is custom, and its author has not stated a post-condition."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect; `rank`, `threadblock` and `step` as far as they apply."""

    kind: DefectKind
    rank: int | None
    threadblock: int | None
    step: int | None
    message: str

    def describe(self) -> str:
        """Return one line: kind, place, message."""
        names = ("rank", "threadblock", "step")
        values = (self.rank, self.threadblock, self.step)
        place = " ".join(
            f"{name} {value}"
            for name, value in zip(names, values, strict=True)
            if value is not None
        )
        return f"{self.kind}: {place}: {self.message}" if place else f"{self.kind}: {self.message}"
