"""The request for a plan, and the tests that end its search."""

from __future__ import annotations

from dataclasses import dataclass

from sketches.sketch import Sketch
from synthesizer.solve.orbits import Orbit

MAX_TRANSFERS = 16_000
"""Most transfers of a timetable; more take minutes to lower and prove."""

_CLOSE_ENOUGH = 1.01
"""Ratio to the bound below which neither more trees nor the solver are tried."""

LEAST_LOAD_SHARE = 0.5
"""Share of the time below which loads do not matter."""


@dataclass(frozen=True)
class PlanRequest:
    """Sketch, sources, size, limits and bounds of a plan."""

    sketch: Sketch
    """The sketch, reversed if `backwards`."""
    backwards: bool
    """Whether the plan will run in reverse."""
    orbits: tuple[Orbit, ...]
    """Orbits of the sources."""
    block_bytes: float
    """Bytes that each source spreads."""
    time_limit_s: float
    """Limit of the solver's work, in seconds of an idle core."""
    gap: float
    trees: tuple[int, ...]
    """Numbers of trees per source to try, in ascending order."""
    load_bound_us: float
    """Lower bound on the load of the busiest resource."""
    latency_bound_us: float
    """Lower bound on the latency of the routes."""
    pieces: int = 0
    """Pieces per tree; 0: depends on the size."""
    counts: tuple[int, ...] = ()
    """Allowed values of trees x pieces; empty: any."""
    max_transfers: int = MAX_TRANSFERS
    """Most transfers of a timetable."""


def load_matters(request: PlanRequest, load_us: float, end_us: float) -> bool:
    """Return whether a lower load of the busiest resource is possible and would save time."""
    return load_us > max(request.load_bound_us * _CLOSE_ENOUGH, LEAST_LOAD_SHARE * end_us)


def good_enough(request: PlanRequest, end_us: float) -> bool:
    """Return whether the time is so close to the bounds that no plan saves much."""
    return end_us <= max(request.load_bound_us, request.latency_bound_us) * _CLOSE_ENOUGH
