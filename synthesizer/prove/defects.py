"""What can be wrong with a schedule, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DefectKind(StrEnum):
    """The classes of defects, in the order in which the verifier looks for them."""

    STRUCTURE = "structure"
    """Ids, peers, offsets, counts or dependences that cannot be executed."""
    CONNECTION = "connection"
    """The two sides of a connection do not fit each other."""
    INPUT_OVERWRITTEN = "input_overwritten"
    """A schedule that is used out of place writes to the caller's send buffer."""
    DEADLOCK = "deadlock"
    RACE = "race"
    UNINITIALISED = "uninitialised"
    """A chunk is used that nothing has been written to."""
    WRONG_RESULT = "wrong_result"
    NO_POSTCONDITION = "no_postcondition"
    """The operation is custom: nothing says what its result should be."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect; `rank`, `threadblock` and `step` as far as they apply."""

    kind: DefectKind
    rank: int | None
    threadblock: int | None
    step: int | None
    message: str

    def describe(self) -> str:
        """One line: kind, place, what is wrong."""
        names = ("rank", "threadblock", "step")
        values = (self.rank, self.threadblock, self.step)
        place = " ".join(
            f"{name} {value}"
            for name, value in zip(names, values, strict=True)
            if value is not None
        )
        return f"{self.kind}: {place}: {self.message}" if place else f"{self.kind}: {self.message}"
