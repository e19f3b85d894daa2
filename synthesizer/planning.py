"""Planning: trees and their timetable for one direction of a collective, chosen for one size.

The size decides between latency and bandwidth. Every number of trees is tried with two kinds of
routes, those that arrive soonest and those that load the machine most evenly, each cut into as many
pieces as pay. Where the best of these is not at the bound already, the integer program looks for
better ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sketches.sketch import Sketch
from synthesizer.composition import TimedTrees
from synthesizer.errors import InfeasibleError
from synthesizer.greedy import soonest_trees
from synthesizer.list_schedule import list_schedule
from synthesizer.orbits import Orbit
from synthesizer.packing import packed_trees
from synthesizer.resources import Resources, resources
from synthesizer.routes import Family, RouteTree, expand, least_time_us
from synthesizer.routing import Routing, route_trees
from synthesizer.solver import SolveStatus

PIECES = (1, 2, 4, 8, 16, 32)
"""Pieces of a chunk that are tried."""

MAX_TRANSFERS = 16_000
"""Transfers of the largest timetable that is tried."""

_CLOSE_ENOUGH = 1.01
"""Loads and timetables this near to the bound are not worth more trees, nor the solver."""

_LATENCY_BOUND = 0.5
"""Nor are loads that take less than this part of the time."""

_FEWER_LOADS = 0.995
"""More trees must bring the busiest resource down to this to be tried."""


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is for."""

    sketch: Sketch
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


@dataclass(frozen=True)
class Plan:
    """Timed trees and what is known about how good they are."""

    timed: TimedTrees
    routing: Routing
    fallback: str | None
    """Why something other than the whole integer program's solution is used."""
    seconds: dict[str, float]

    @property
    def end_us(self) -> float:
        """End of the timetable."""
        return self.timed.timetable.end_us


@dataclass(frozen=True)
class _Start:
    """Routes found without a solver."""

    families: tuple[Family, ...]
    trees: dict[Family, RouteTree]
    timed: TimedTrees
    load_us: float

    @property
    def end_us(self) -> float:
        return self.timed.timetable.end_us


def make_plan(request: PlanRequest) -> Plan:
    """The best plan that is found within the limits.

    Raises:
        InfeasibleError: The block can't be cut into chunks.
        SolverError: No solver works.
    """
    started = time.perf_counter()
    start = _best_start(request)
    routed = time.perf_counter()
    floor_us = max(request.load_bound_us, request.latency_bound_us)
    if start.end_us <= floor_us * _CLOSE_ENOUGH:
        costs = _costs(request, start)
        found = start.timed.trees
        # Proved by the bound, which the caller knows.
        routing = Routing(
            tuple(found), least_time_us(found, costs), 0.0, SolveStatus.OPTIMAL, False
        )
        seconds = {"greedy": routed - started, "routing": 0.0, "ordering": 0.0}
        return Plan(start.timed, routing, None, seconds)
    plan = _solved(request, start)
    return replace(plan, seconds={"greedy": routed - started, **plan.seconds})


def _best_start(request: PlanRequest) -> _Start:
    """The start with the soonest end; more trees only where they take load off."""
    best: _Start | None = None
    least_load_us = float("inf")
    for trees in request.trees:
        if request.block_bytes < trees:
            break
        families = tuple(Family(orbit, i) for orbit in request.orbits for i in range(trees))
        whole = resources(request.sketch, request.block_bytes / trees)
        ranks = request.sketch.ranks
        packed = packed_trees(whole, families, ranks, request.load_bound_us)
        packed_us = _load_us(whole, packed)
        routes = [packed] if packed_us < least_load_us * _FEWER_LOADS else []
        if best is None:
            routes.append(soonest_trees(whole, families, ranks))
        for laid in routes:
            timed = _timed(request, trees, expand(laid))
            if best is None or timed.timetable.end_us < best.end_us:
                best = _Start(families, laid, timed, _load_us(whole, laid))
        least_load_us = min(least_load_us, packed_us)
        if best is not None and least_load_us <= max(
            request.load_bound_us * _CLOSE_ENOUGH, _LATENCY_BOUND * best.end_us
        ):
            break
    if best is None:
        raise InfeasibleError(
            f"sketch {request.sketch.name}: {request.block_bytes:g} bytes per source can't be cut"
            " into chunks; ask for a larger size"
        )
    return best


def _load_us(costs: Resources, trees: dict[Family, RouteTree]) -> float:
    """Time for which the busiest resource is occupied."""
    return max(costs.loads_us(hop for tree in expand(trees) for hop in tree.hops))


def _costs(request: PlanRequest, start: _Start) -> Resources:
    """Routes are judged by what one piece needs on its way and all pieces on the resources."""
    chunk_bytes = request.block_bytes / start.timed.per_source
    whole = resources(request.sketch, chunk_bytes)
    piece = resources(request.sketch, chunk_bytes / start.timed.pieces)
    return replace(whole, latency_us=piece.latency_us)


def _solved(request: PlanRequest, start: _Start) -> Plan:
    """What the integer program makes of a start, or the start where that ends sooner."""
    started = time.perf_counter()
    costs = _costs(request, start)
    routing = route_trees(request.sketch, costs, start.trees, request.time_limit_s, request.gap)
    routed = time.perf_counter()
    same = replace(request, pieces=start.timed.pieces)
    timed = _timed(same, start.timed.per_source, routing.trees)
    fallback = _fallback(routing)
    if start.end_us < timed.timetable.end_us:
        timed = start.timed
        found = tuple(timed.trees)
        routing = replace(routing, trees=found, least_time_us=least_time_us(found, costs))
        fallback = fallback or "greedy trees: their timetable is shorter than the solver's"
    seconds = {"routing": routed - started, "ordering": time.perf_counter() - routed}
    return Plan(timed, routing, fallback, seconds)


def _fallback(routing: Routing) -> str | None:
    if routing.status is None:
        until = ", until the time limit" if routing.limit_hit else ""
        return f"routed one tree after another{until}: too many variables to solve together"
    if routing.status is SolveStatus.OPTIMAL:
        return None
    if routing.status is SolveStatus.FEASIBLE:
        return "solver stopped at its limit"
    return "greedy trees: the solver found nothing better before its limit"


def _timed(request: PlanRequest, per_source: int, trees: Sequence[RouteTree]) -> TimedTrees:
    """A timetable with the piece count asked for, or the one that pays most."""
    chunk_bytes = request.block_bytes / per_source
    counts = (request.pieces,) if request.pieces else PIECES
    hops = sum(len(tree.hops) for tree in trees)

    def at(pieces: int) -> TimedTrees:
        costs = resources(request.sketch, chunk_bytes / pieces)
        return TimedTrees(trees, per_source, pieces, list_schedule(trees, pieces, costs))

    best = at(counts[0])
    floor_us = max(request.load_bound_us, request.latency_bound_us)
    for pieces in counts[1:]:
        if best.timetable.end_us <= floor_us * _CLOSE_ENOUGH:
            break
        if chunk_bytes < pieces or hops * pieces > MAX_TRANSFERS:
            break
        finer = at(pieces)
        if not finer_pays(best.timetable.end_us, finer.timetable.end_us):
            break
        best = finer
    return best


def finer_pays(coarse_us: float, fine_us: float) -> bool:
    """Whether twice as many pieces are worth their steps.

    They must save 2 %; where the schedule runs long enough that the handover of a step is nothing
    beside it, 10 us and 0.2 % do.
    """
    least_us = min(0.02 * coarse_us, max(0.002 * coarse_us, 10.0))
    return coarse_us - fine_us >= least_us
