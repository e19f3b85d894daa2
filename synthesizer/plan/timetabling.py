"""Timetabling: pieces and order of the transfers along given trees, chosen by rehearsal.

The order within each connection is all that a schedule can tell its threadblocks; a port then takes
messages as they come, from every connection that has one. Where much is ready at once, at the start
above all, that is in turn. A timetable that reckons otherwise leaves ports idle for a piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.list_schedule import Precedence, list_schedule
from synthesizer.plan.plan_request import PlanRequest, good_enough
from synthesizer.plan.rehearsal import rehearsed_us
from synthesizer.solve.resources import resources, reversed_sketch
from synthesizer.solve.routes import RouteTree

PIECES = (1, 2, 4, 8, 16, 32)
"""Pieces of a chunk that are tried."""

LEAST_PIECE_BYTES = 512
"""What a warp moves with one load of 16 bytes per thread; smaller pieces only cost steps."""

_SEARCHED = (Precedence.LONGEST_WAY, Precedence.LONGEST_WAIT)
"""Orders that trees and pieces are chosen by; a third one costs a third of the time more."""

_AT_THE_BOUND = 1.0001
"""Nothing is left to gain."""


@dataclass(frozen=True)
class Rehearsed:
    """Trees with a timetable, and the time that it takes."""

    timed: TimedTrees
    end_us: float


def rehearse(request: PlanRequest, per_source: int, trees: Sequence[RouteTree]) -> Rehearsed:
    """The best timetable with the piece count asked for, or with the one that pays most."""
    chunk_bytes = request.block_bytes / per_source
    counts = (request.pieces,) if request.pieces else _piece_counts(request, per_source)
    hops = sum(len(tree.hops) for tree in trees)

    def at(pieces: int) -> Rehearsed:
        found = (_timed(request, per_source, trees, pieces, order) for order in _SEARCHED)
        return min(found, key=lambda rehearsed: rehearsed.end_us)

    best = at(counts[0])
    vain = 0
    for pieces in counts[1:]:
        if good_enough(request, best.end_us):
            break
        if chunk_bytes < pieces * LEAST_PIECE_BYTES or hops * pieces > request.max_transfers:
            break
        finer = at(pieces)
        if finer_pays(best.end_us, finer.end_us):
            best, vain = finer, 0
        elif vain:
            break
        else:
            vain = 1
    return best


def in_turn(request: PlanRequest, best: Rehearsed) -> Rehearsed:
    """The same transfers with connections in turn, where they do not end at the bound already.

    Not backwards: there lowering fuses steps that the rehearsal runs apart, and 0.2 % foretold were
    8 % lost on 2x8 H100 less one NIC.
    """
    bound_us = max(request.load_bound_us, request.latency_bound_us)
    if request.backwards or best.end_us <= bound_us * _AT_THE_BOUND:
        return best
    timed = best.timed
    found = _timed(request, timed.per_source, timed.trees, timed.pieces, Precedence.IN_TURN)
    return min(best, found, key=lambda rehearsed: rehearsed.end_us)


def _timed(
    request: PlanRequest,
    per_source: int,
    trees: Sequence[RouteTree],
    pieces: int,
    precedence: Precedence,
) -> Rehearsed:
    piece_bytes = request.block_bytes / per_source / pieces
    timetable = list_schedule(trees, pieces, resources(request.sketch, piece_bytes), precedence)
    timed = TimedTrees(trees, per_source, pieces, timetable)
    sketch = reversed_sketch(request.sketch) if request.backwards else request.sketch
    return Rehearsed(timed, rehearsed_us(timed, piece_bytes, sketch, backwards=request.backwards))


def _piece_counts(request: PlanRequest, per_source: int) -> Sequence[int]:
    if not request.counts:
        return PIECES
    return [pieces for pieces in PIECES if per_source * pieces in request.counts] or PIECES[:1]


def finer_pays(coarse_us: float, fine_us: float) -> bool:
    """Whether more pieces are worth their steps.

    They must save 2 %; where the schedule runs long enough that the handover of a step is nothing
    beside it, 10 us and 0.2 % do.
    """
    least_us = min(0.02 * coarse_us, max(0.002 * coarse_us, 10.0))
    return coarse_us - fine_us >= least_us
