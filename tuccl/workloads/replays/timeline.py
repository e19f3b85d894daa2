"""`Timeline`: the work of recorded steps in its order of launch, with what each piece waits for.

The steps are taken as ones of many that are alike, so that a piece may also wait for work of the
steps before: a pass over the timeline follows another.

Units: microseconds since the timeline's begin.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimelineWork:
    """Work on a GPU, which begins when its launch and all that it waits for are done."""

    time_us: float
    kind: int | None
    """As in `GpuWork`."""
    after: tuple[int, ...]
    """Numbers of the work of this pass that it waits for."""
    after_before: tuple[int, ...]
    """Numbers of the work of the pass before that it waits for."""
    launch_lag_us: float
    """Time from its launch to its begin, at least."""
    lag_us: float
    """Time from the end of all that it waited for to its begin; negative where they overlap."""
    is_copy: bool = False
    """As in `GpuWork`."""

    @property
    def computes(self) -> bool:
        """Whether it is computation: neither a collective nor a copy."""
        return self.kind is None and not self.is_copy


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of the host that launches work."""

    at_us: float
    begin: int
    """Number of its first work."""
    end: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A call of the host that returns when work has ended."""

    at_us: float
    ended_us: float
    work: tuple[int, ...]
    """Numbers of that work in this pass."""
    work_before: tuple[int, ...]
    """Numbers of that work in the pass before."""
    extra_us: float
    """Time from the end of that work, or from the call if that is later, to the return."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The work of a recording, in the order of its launch, and the calls of the host."""

    host_us: float
    """Time from the begin of the first step to the end of the last on the host."""
    recorded_us: float
    """Time to the end of all that these steps launched, or of the host if that is later."""
    work: tuple[TimelineWork, ...]
    calls: tuple[Launch | Wait, ...]
    """By time: launches by their begin, waits by their return."""
