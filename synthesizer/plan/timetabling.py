"""Timetabling: pieces and order of transfers along given trees, chosen by rehearsal.

A schedule fixes only the order within each connection; a port serves messages as they arrive, or
all of them at once. A timetable that assumes another order at the ports leaves them idle. So beside
two orders of list scheduling a timetable is tried in which transfers queue at the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sketches.sketch import Sketch
from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.list_schedule import Precedence, Timetable, list_schedule
from synthesizer.plan.port_queues import queued_timetable
from synthesizer.plan.rehearsal import rehearsed
from synthesizer.solve.resources import Resources, resources, reversed_sketch
from synthesizer.solve.routes import Orbit, RouteTree

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


PIECES = (1, 2, 4, 8, 16, 32)
"""Numbers of pieces per chunk to try."""

LEAST_PIECE_BYTES = 512
"""Bytes that a warp moves with one load of 16 bytes per thread; smaller pieces only cost steps."""

_MOST_COMPARED = 2000
"""Most transfers of a timetable that is made in several orders; longer ones are made in the order
that was the fastest with fewer pieces."""

_Timetabler = Callable[[Sequence[RouteTree], int, Resources], Timetable]
"""Function of trees, pieces and the costs of a piece."""

_AT_THE_BOUND = 1.0001
"""Ratio to the bound below which nothing is left to gain."""


@dataclass(frozen=True)
class Rehearsed:
    """Trees with a timetable, and the worse of its rehearsed times."""

    timed: TimedTrees
    end_us: float


def rehearse(request: PlanRequest, per_source: int, trees: Sequence[RouteTree]) -> Rehearsed:
    """Return the best timetable with the requested number of pieces, or with the best number."""
    chunk_bytes = request.block_bytes / per_source
    counts = (request.pieces,) if request.pieces else _piece_counts(request, per_source)
    hops = sum(len(tree.hops) for tree in trees)

    timetablers: Sequence[_Timetabler] = (
        _listed(Precedence.LONGEST_PATH),
        _listed(Precedence.LONGEST_WAIT),
        partial(queued_timetable, backwards=request.backwards),
    )

    def cut(pieces: int) -> tuple[Rehearsed, _Timetabler]:
        found = [(_timed(request, per_source, trees, pieces, by), by) for by in timetablers]
        return min(found, key=lambda made: made[0].end_us)

    best, fastest = cut(counts[0])
    misses = 0
    for pieces in counts[1:]:
        if good_enough(request, best.end_us):
            break
        if chunk_bytes < pieces * LEAST_PIECE_BYTES or hops * pieces > request.max_transfers:
            break
        if hops * pieces > _MOST_COMPARED:
            timetablers = (fastest,)
        finer, fastest = cut(pieces)
        if finer_pays(best.end_us, finer.end_us):
            best, misses = finer, 0
        elif misses:
            break
        else:
            misses = 1
    return best


def in_turn(request: PlanRequest, best: Rehearsed) -> Rehearsed:
    """Return the same transfers with connections in turn, if that is faster.

    Reversed plans are left as they are: lowering fuses steps that the rehearsal runs separately,
    and a predicted gain of 0.2 % was a loss of 8 % on 2x8 H100 with a missing NIC.
    """
    bound_us = max(request.load_bound_us, request.latency_bound_us)
    if request.backwards or best.end_us <= bound_us * _AT_THE_BOUND:
        return best
    timed = best.timed
    timetabler = _listed(Precedence.IN_TURN)
    found = _timed(request, timed.per_source, timed.trees, timed.pieces, timetabler)
    return min(best, found, key=lambda rehearsed: rehearsed.end_us)


def _listed(precedence: Precedence) -> _Timetabler:
    return partial(list_schedule, precedence=precedence)


def _timed(
    request: PlanRequest,
    per_source: int,
    trees: Sequence[RouteTree],
    pieces: int,
    timetabler: _Timetabler,
) -> Rehearsed:
    piece_bytes = request.block_bytes / per_source / pieces
    timetable = timetabler(trees, pieces, resources(request.sketch, piece_bytes))
    timed = TimedTrees(trees, per_source, pieces, timetable)
    sketch = reversed_sketch(request.sketch) if request.backwards else request.sketch
    times = rehearsed(timed, piece_bytes, sketch, backwards=request.backwards)
    return Rehearsed(timed, times.worse_us)


def _piece_counts(request: PlanRequest, per_source: int) -> Sequence[int]:
    if not request.counts:
        return PIECES
    return [pieces for pieces in PIECES if per_source * pieces in request.counts] or PIECES[:1]


def finer_pays(coarse_us: float, fine_us: float) -> bool:
    """Return whether more pieces pay for their steps.

    They must save 2 %, or the larger of 0.2 % and 10 us if that is less, because the handover of a
    step is negligible in a long schedule.
    """
    least_us = min(0.02 * coarse_us, max(0.002 * coarse_us, 10.0))
    return coarse_us - fine_us >= least_us
