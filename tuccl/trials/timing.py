"""`Timing`: how a backend times a call, which its figures cannot be read without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tuccl.trials.backend import Backend

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Timing:
    """How calls were timed."""

    calls_up_to: tuple[tuple[int, int], ...] = ((1 * MIB, 20), (64 * MIB, 5))
    """(bytes, calls): up to that size a launch, which is one sample, has so many calls."""
    calls_above: int = 2
    """Calls per launch of larger sizes."""
    graph: bool = True
    """Whether a launch is one CUDA graph."""
    in_place: bool = False
    data_type: str = "float16"

    def calls(self, size_bytes: int) -> int:
        """Calls back to back in one launch of this size."""
        for up_to, calls in self.calls_up_to:
            if size_bytes <= up_to:
                return calls
        return self.calls_above


@runtime_checkable
class Timed(Protocol):
    """A backend that says how it times."""

    @property
    def timing(self) -> Timing:
        """How it times."""


def timing_of(backend: Backend) -> Timing:
    """How a backend times: as it says, or else in the usual way."""
    return backend.timing if isinstance(backend, Timed) else Timing()


def timing_from_json(values: Any) -> Timing:
    """The timing that `dataclasses.asdict` made JSON of.

    Raises:
        ValueError, TypeError, KeyError: it is no timing.
    """
    ladder = tuple((int(up_to), int(calls)) for up_to, calls in values["calls_up_to"])
    timing = Timing(**{**values, "calls_up_to": ladder})
    numbers = (timing.calls_above, *(number for step in ladder for number in step))
    flags = (timing.graph, timing.in_place)
    if not (
        all(type(number) is int for number in numbers)
        and all(type(flag) is bool for flag in flags)
        and isinstance(timing.data_type, str)
    ):
        raise ValueError("a timing whose figures are of other types")
    if not all(calls >= 1 for calls in (timing.calls_above, *(calls for _, calls in ladder))):
        raise ValueError("a launch without calls")
    return timing
