"""Planning: trees and their timetable for one direction of a collective, chosen for one size.

The size decides between latency and bandwidth: it sets the weight of alpha in the routing program,
how many trees each source gets, and into how many pieces a tree's chunk is cut.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sketches.sketch import Sketch
from synthesizer.composition import TimedTrees
from synthesizer.greedy import balanced_trees, soonest_trees
from synthesizer.list_schedule import list_schedule
from synthesizer.orbits import Orbit
from synthesizer.resources import resources
from synthesizer.routes import Family, RouteTree, expand, least_time_us
from synthesizer.routing import Routing, route_trees
from synthesizer.solver import SolveStatus

PIECES = (1, 2, 4, 8)
"""Pieces of a chunk that are tried."""

MAX_TRANSFERS = 8_000
"""Transfers of the largest timetable that is tried."""

_WORTH_IT = 0.98
"""More pieces or trees must save this much to be taken: each costs steps."""


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
    trees: int
    """Trees per source."""
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
    load_us: float
    """Time for which the busiest resource is occupied."""

    @property
    def end_us(self) -> float:
        """End of the timetable."""
        return self.timed.timetable.end_us


def make_plan(request: PlanRequest) -> Plan:
    """Greedy trees, improved by the integer program, with the better timetable of the two.

    Raises:
        SolverError: No solver works.
    """
    started = time.perf_counter()
    families = [Family(orbit, i) for orbit in request.orbits for i in range(request.trees)]
    chunk_bytes = request.block_bytes / request.trees
    whole = resources(request.sketch, chunk_bytes)
    starts = (
        soonest_trees(whole, families, request.sketch.ranks),
        balanced_trees(whole, families),
    )
    timed_starts = [_timed(request, expand(trees)) for trees in starts]
    best = min(range(len(starts)), key=lambda i: timed_starts[i].timetable.end_us)
    start, greedy = starts[best], timed_starts[best]
    # Routes are judged by what one piece needs on its way and all pieces on the resources.
    piece = resources(request.sketch, chunk_bytes / greedy.pieces)
    costs = replace(whole, latency_us=piece.latency_us)
    routed = time.perf_counter()
    routing = route_trees(request.sketch, costs, start, request.time_limit_s, request.gap)
    ordered = time.perf_counter()
    timed = _timed(replace(request, pieces=greedy.pieces), routing.trees)
    fallback = _fallback(routing)
    if greedy.timetable.end_us < timed.timetable.end_us:
        timed = greedy
        least = least_time_us(greedy.trees, costs)
        routing = replace(routing, trees=tuple(greedy.trees), least_time_us=least)
        fallback = fallback or "greedy trees: their timetable is shorter than the solver's"
    ended = time.perf_counter()
    seconds = {
        "greedy": routed - started,
        "routing": ordered - routed,
        "ordering": ended - ordered,
    }
    load_us = max(costs.loads_us(hop for tree in routing.trees for hop in tree.hops))
    return Plan(timed, routing, fallback, seconds, load_us)


def _fallback(routing: Routing) -> str | None:
    if routing.status is None:
        until = ", until the time limit" if routing.limit_hit else ""
        return f"routed one tree after another{until}: too many variables to solve together"
    if routing.status is SolveStatus.OPTIMAL:
        return None
    if routing.status is SolveStatus.FEASIBLE:
        return "solver stopped at its limit"
    return "greedy trees: the solver found nothing better before its limit"


def _timed(request: PlanRequest, trees: Sequence[RouteTree]) -> TimedTrees:
    """A timetable with the piece count asked for, or the one that ends soonest."""
    chunk_bytes = request.block_bytes / request.trees
    counts = (request.pieces,) if request.pieces else PIECES
    hops = sum(len(tree.hops) for tree in trees)

    def at(pieces: int) -> TimedTrees:
        costs = resources(request.sketch, chunk_bytes / pieces)
        timetable = list_schedule(trees, pieces, costs)
        return TimedTrees(trees, request.trees, pieces, timetable)

    best = at(counts[0])
    for pieces in counts[1:]:
        if chunk_bytes < pieces or hops * pieces > MAX_TRANSFERS:
            break
        finer = at(pieces)
        if finer.timetable.end_us >= best.timetable.end_us * _WORTH_IT:
            break
        best = finer
    return best
