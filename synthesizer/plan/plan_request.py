"""What a plan is for, and when an end is near enough to what no plan undercuts."""

from __future__ import annotations

from dataclasses import dataclass

from sketches.sketch import Sketch
from synthesizer.solve.orbits import Orbit

MAX_TRANSFERS = 16_000
"""Of the largest timetable: more take minutes to lower and prove."""

_CLOSE_ENOUGH = 1.01
"""Loads and timetables this near to the bound are not worth more trees, nor the solver."""

LATENCY_BOUND = 0.5
"""Loads that take less than this part of the time do not count."""


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is for."""

    sketch: Sketch
    """Reversed where the plan will be run backwards."""
    backwards: bool
    orbits: tuple[Orbit, ...]
    """Sources."""
    block_bytes: float
    """What each source has to spread."""
    time_limit_s: float
    gap: float
    trees: tuple[int, ...]
    """Trees per source that may be tried, fewest first."""
    load_bound_us: float
    """No routes load the busiest resource less."""
    latency_bound_us: float
    """No routes arrive sooner."""
    pieces: int = 0
    """Pieces per tree; 0: chosen by size."""
    counts: tuple[int, ...] = ()
    """Trees x pieces that may be chosen; empty: any."""
    max_transfers: int = MAX_TRANSFERS
    """Transfers of the largest timetable that is tried."""


def loads_count(request: PlanRequest, load_us: float, end_us: float) -> bool:
    """Whether the busiest resource can be relieved, and whether that would tell."""
    return load_us > max(request.load_bound_us * _CLOSE_ENOUGH, LATENCY_BOUND * end_us)


def good_enough(request: PlanRequest, end_us: float) -> bool:
    """Whether nothing can take much less time."""
    return end_us <= max(request.load_bound_us, request.latency_bound_us) * _CLOSE_ENOUGH
