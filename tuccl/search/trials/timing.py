"""`Timing`: how a backend times a call, which its figures cannot be read without."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf, log
from typing import Any, Protocol, runtime_checkable

from pydantic import TypeAdapter, ValidationError

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.inputs.messages import first_fault
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
    """How long the GPU takes for it if it does nothing else; 0: there is none beside this size."""


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
    in_windows: bool = False
    """Whether buffers are registered (ncclCommWindowRegister)."""
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


_TIMING = TypeAdapter(Timing)


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
        ValueError, TypeError: It is not a timing.
    """
    if "calls_up_to" not in values:
        raise ValueError("no timing: it has no calls_up_to")
    try:
        timing = _TIMING.validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(f"no timing: {first_fault(error)}") from error
    if not all(calls >= 1 for calls in (timing.calls_above, *(n for _, n in timing.calls_up_to))):
        raise ValueError("a launch without calls")
    for each in timing.computations:
        if each.shape.fault or each.size_bytes < 1 or not 0.0 <= each.time_us < inf:
            raise ValueError("a computation whose figures cannot be")
    return timing
