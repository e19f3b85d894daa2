"""Planning over shares of trees, for machines on which packed trees stay below the bound.

More and more chunks per source are tried while they pay: they follow the shares of the linear
program more closely and fill the ports sooner, and cost steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from synthesizer.plan.plan_request import LEAST_LOAD_SHARE, PlanRequest, good_enough
from synthesizer.plan.timetabling import (
    LEAST_PIECE_BYTES,
    Rehearsed,
    finer_pays,
    in_turn,
    rehearse,
)
from synthesizer.solve.block_packing import BlockPacking
from synthesizer.solve.resources import resources
from synthesizer.solve.routes import Family, RouteTree, expand

CHUNKS = (4, 8, 16, 32, 64)
"""Numbers of chunks per source to try, of one piece each."""

_HOP_WEIGHTS = (0.02, 0.1)
"""Weights of the latencies of hops; either may be the better one for the order of transfers."""

_MOST_MISSES = 2
"""Consecutive numbers of chunks that do not pay after which no more are tried."""

_AT_THE_LOAD = 1.05
"""Ratio of the time to the busiest port's load below which only the rounding of shares to chunks
keeps the time up."""


@dataclass(frozen=True)
class BlockPlan:
    """Trees over which blocks are shared out, with their timetable."""

    trees: dict[Family, RouteTree]
    rehearsed: Rehearsed


def plan_blocks(request: PlanRequest, to_beat_us: float) -> BlockPlan | None:
    """Return the best plan if it pays beside one that takes `to_beat_us`.

    Raises:
        ScheduleError: HiGHS fails on a linear program.
    """
    if good_enough(request, to_beat_us) or request.load_bound_us < LEAST_LOAD_SHARE * to_beat_us:
        return None
    packings = [
        BlockPacking(request.sketch, request.orbits, request.block_bytes, weight)
        for weight in _HOP_WEIGHTS
    ]
    best: BlockPlan | None = None
    fastest_us, misses = float("inf"), 0
    for chunks, pieces in _cuts(request):
        if misses == _MOST_MISSES or not _may_be_tried(request, chunks * pieces):
            break
        of_count = replace(request, pieces=pieces)
        costs = resources(request.sketch, request.block_bytes / chunks)
        found = []
        for packing in packings:
            trees = packing.trees(chunks)
            found.append(BlockPlan(trees, rehearse(of_count, chunks, expand(trees))))
        plan = min(found, key=lambda plan: plan.rehearsed.end_us)
        end_us = plan.rehearsed.end_us
        load_us = max(costs.loads_us(hop for tree in expand(plan.trees) for hop in tree.hops))
        paid = end_us <= load_us * _AT_THE_LOAD or finer_pays(fastest_us, end_us)
        misses = 0 if paid else misses + 1
        fastest_us = min(fastest_us, end_us)
        if finer_pays(best.rehearsed.end_us if best else to_beat_us, end_us):
            best = plan
        if good_enough(request, fastest_us):
            break
    return best and replace(best, rehearsed=in_turn(request, best.rehearsed))


def _cuts(request: PlanRequest) -> list[tuple[int, int]]:
    """Return the numbers of chunks to try, each with its number of pieces."""
    if request.pieces:
        return [(chunks, request.pieces) for chunks in request.trees]
    if request.counts:
        return [(chunks, 1) for chunks in request.counts if CHUNKS[0] <= chunks <= CHUNKS[-1]]
    asked = request.trees if len(request.trees) == 1 else CHUNKS
    return [(chunks, 1) for chunks in asked]


def _may_be_tried(request: PlanRequest, chunks: int) -> bool:
    """Return whether chunks and transfers stay within their limits."""
    sources = sum(len(orbit.images) for orbit in request.orbits)
    transfers = chunks * sources * (request.sketch.ranks - 1)
    enough = request.block_bytes >= chunks * LEAST_PIECE_BYTES
    return enough and transfers <= request.max_transfers
