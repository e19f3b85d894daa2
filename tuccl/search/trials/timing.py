"""`Timing`: how a backend times a call, which its figures cannot be read without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log
from typing import Any, Protocol, runtime_checkable

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.backend import Backend
from tuccl.search.trials.config import Task

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Computation:
    """Computation beside each call of an operation at one size."""

    operation: Collective
    shape: Shape
    """Shape of the call's communicator."""
    size_bytes: int
    time_us: float
    """How long the GPU takes for it if it does nothing else."""


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
    computations: tuple[Computation, ...] = ()
    """Computation beside calls, whose time then ends when both have ended; empty: calls are timed
    alone."""

    def computation_us(self, task: Task) -> float:
        """Time of the computation beside each call, in us; 0: there is none.

        Beside a call of a size that is not listed it is that of the nearest one of its operation
        and shape, in proportion to the bytes.
        """
        near = min(
            (
                each
                for each in self.computations
                if (each.operation, each.shape) == (task.operation, task.shape)
            ),
            key=lambda each: abs(log(each.size_bytes / task.size_bytes)),
            default=None,
        )
        return 0.0 if near is None else near.time_us * task.size_bytes / near.size_bytes

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
        ValueError, TypeError, KeyError: It is not a timing.
    """
    ladder = tuple((int(up_to), int(calls)) for up_to, calls in values["calls_up_to"])
    computations = tuple(map(_computation, values.get("computations", ())))
    timing = Timing(**{**values, "calls_up_to": ladder, "computations": computations})
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


def _computation(values: Mapping[str, Any]) -> Computation:
    """The computation that `dataclasses.asdict` made JSON of.

    Raises:
        ValueError, TypeError, KeyError: It is none.
    """
    shape, size_bytes = Shape(**values["shape"]), values["size_bytes"]
    time_us = float(values["time_us"])
    if shape.fault or type(size_bytes) is not int or size_bytes < 1 or not 0.0 < time_us < inf:
        raise ValueError("a computation whose figures cannot be")
    return Computation(Collective.named(values["operation"]), shape, size_bytes, time_us)
