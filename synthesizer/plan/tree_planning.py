"""Planning: trees and their timetable for one direction of a collective, chosen for one size.

The size decides between latency and bandwidth. Every number of trees is tried with two kinds of
routes, those that arrive soonest and those that load the machine most evenly, each cut into as many
pieces as pay. Where the best of these is not at the bound already, the integer program looks for
better ones. What is chosen is timed once more with connections in turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.plan_request import LATENCY_BOUND, PlanRequest, good_enough, loads_count
from synthesizer.plan.timetabling import LEAST_PIECE_BYTES, Rehearsed, in_turn, rehearse
from synthesizer.solve.greedy import FIFO_SLOTS, soonest_trees
from synthesizer.solve.packing import packed_trees
from synthesizer.solve.resources import Hop, Resources, resources
from synthesizer.solve.routes import Family, RouteTree, expand, least_time_us
from synthesizer.solve.shallow_packing import shallow_trees
from synthesizer.solve.solver import SolveStatus
from synthesizer.solve.tree_routing import Routing, route_trees

_SETTLED = 1.004
"""Timetables this near to the bound are not worth more trees; packing alone may leave 0.2 %."""

_SAME = 1 + 1e-9

_FEWER_LOADS = 0.995
"""More packed trees must bring the busiest resource down to this to be tried."""

_MOST_FAMILIES = 256
"""Trees that are sought together: 32 ranks without symmetry take seconds for so many."""

_MOST_VAIN = 2
"""Numbers of trees in a row that may end no sooner than fewer trees did."""


@dataclass(frozen=True)
class Plan:
    """Timed trees and what is known about how good they are."""

    timed: TimedTrees
    routing: Routing
    fallback: str | None
    """Why something other than the whole integer program's solution is used."""
    seconds: dict[str, float]
    end_us: float
    """By rehearsal."""


@dataclass(frozen=True)
class _Start:
    """Routes found without a solver."""

    trees: dict[Family, RouteTree]
    rehearsed: Rehearsed


def make_plan(request: PlanRequest) -> Plan:
    """The best plan that is found within the limits.

    Raises:
        SolverError: No solver works.
    """
    started = time.perf_counter()
    start = _best_start(request)
    seconds = {"greedy": time.perf_counter() - started, "routing": 0.0, "ordering": 0.0}
    if not good_enough(request, start.rehearsed.end_us):
        plan = _solved(request, start)
        return replace(plan, seconds=seconds | plan.seconds)
    timed = start.rehearsed.timed
    least_us = least_time_us(timed.trees, _costs(request, timed))
    # Proved by the bound that the caller knows.
    routing = Routing(tuple(timed.trees), least_us, 0.0, SolveStatus.OPTIMAL, False)
    return Plan(timed, routing, None, seconds, start.rehearsed.end_us)


def _best_start(request: PlanRequest) -> _Start:
    """The start with the soonest end; more trees while they take load off or end sooner."""
    best: _Start | None = None
    least_load_us, vain = float("inf"), 0
    for trees in request.trees:
        if best and not _may_be_tried(request, trees):
            break
        families = tuple(Family(orbit, i) for orbit in request.orbits for i in range(trees))
        whole = resources(request.sketch, request.block_bytes / trees)
        routes: dict[frozenset[tuple[Family, Hop]], dict[Family, RouteTree]] = {}
        loads = [least_load_us]
        for laid in _even_trees(request, whole, families):
            loads.append(_load_us(whole, laid))
            if loads[-1] < least_load_us * _FEWER_LOADS:
                routes.setdefault(_hops(laid), laid)
        least_load_us = min(loads)
        for slots in _slots(request, trees, least_load_us, best):
            soonest = soonest_trees(whole, families, request.sketch.ranks, slots)
            routes.setdefault(_hops(soonest), soonest)
        before = best
        for laid in routes.values():
            if best and _load_us(whole, laid) >= best.rehearsed.end_us:
                continue
            rehearsed = rehearse(request, trees, expand(laid))
            if best is None or rehearsed.end_us < best.rehearsed.end_us:
                best = _Start(laid, rehearsed)
        if routes:
            vain = 0 if best is not before else vain + 1
        if best and not _worth_more(request, least_load_us, best.rehearsed.end_us, vain):
            break
    if best is None:
        msg = "a plan needs a number of trees to try"
        raise ValueError(msg)
    return replace(best, rehearsed=in_turn(request, best.rehearsed))


def _even_trees(
    request: PlanRequest, whole: Resources, families: Sequence[Family]
) -> Iterator[dict[Family, RouteTree]]:
    """Trees that load the machine evenly: whatever their ways, and forwards with short ones.

    Backwards the rehearsal foretells less, see `timetabling.in_turn`: short ways foretold 1 % and
    lost 9 % on 2x8 H100 less one NIC.
    """
    sketch, target_us = request.sketch, request.load_bound_us
    yield packed_trees(whole, families, sketch.ranks, target_us)
    if not request.backwards:
        yield shallow_trees(whole, families, sketch.node_of_rank, target_us)


def _hops(trees: dict[Family, RouteTree]) -> frozenset[tuple[Family, Hop]]:
    """By which trees that were laid in another order are found to be the same."""
    return frozenset((family, hop) for family, tree in trees.items() for hop in tree.hops)


def _may_be_tried(request: PlanRequest, trees: int) -> bool:
    """Whether chunks, search and timetable stay within their limits."""
    sources = sum(len(orbit.images) for orbit in request.orbits)
    transfers = trees * sources * (request.sketch.ranks - 1)
    return (
        request.block_bytes >= trees * LEAST_PIECE_BYTES
        and trees * len(request.orbits) <= _MOST_FAMILIES
        and transfers <= request.max_transfers
    )


def _slots(
    request: PlanRequest, trees: int, least_load_us: float, best: _Start | None
) -> tuple[int, ...]:
    """With how many slots per connection soonest trees are worth a try.

    More of them mix finer, which closes gaps between messages where loads are even already. With
    one slot, blocks spread over more connections and leave room for pieces.
    """
    if best is None:
        return FIFO_SLOTS, 1
    end_us = best.rehearsed.end_us
    if loads_count(request, least_load_us, end_us):
        return ()
    if request.load_bound_us < LATENCY_BOUND * end_us:
        return (1,)
    return (FIFO_SLOTS,) if trees.bit_count() == 1 else ()


def _worth_more(request: PlanRequest, load_us: float, end_us: float, vain: int) -> bool:
    """Whether still more trees may end sooner."""
    if end_us <= max(request.load_bound_us, request.latency_bound_us) * _SETTLED:
        return False
    return loads_count(request, load_us, end_us) or vain < _MOST_VAIN


def _load_us(costs: Resources, trees: dict[Family, RouteTree]) -> float:
    """Time for which the busiest resource is occupied."""
    return max(costs.loads_us(hop for tree in expand(trees) for hop in tree.hops))


def _solved(request: PlanRequest, start: _Start) -> Plan:
    """What the integer program makes of a start, or the start where that ends sooner."""
    started = time.perf_counter()
    best = start.rehearsed
    costs = _costs(request, best.timed)
    routing = route_trees(request.sketch, costs, start.trees, request.time_limit_s, request.gap)
    routed = time.perf_counter()
    same = replace(request, pieces=best.timed.pieces)
    solved = in_turn(request, rehearse(same, best.timed.per_source, routing.trees))
    fallback = _fallback(routing)
    if solved.end_us <= best.end_us:
        best = solved
    else:
        found = tuple(best.timed.trees)
        least_us = least_time_us(found, costs)
        if least_us > routing.least_time_us * _SAME:
            fallback = fallback or "greedy trees: they take less time than the solver's"
        routing = replace(routing, trees=found, least_time_us=least_us)
    seconds = {"routing": routed - started, "ordering": time.perf_counter() - routed}
    return Plan(best.timed, routing, fallback, seconds, best.end_us)


def _fallback(routing: Routing) -> str | None:
    if routing.status is None:
        until = ", until the time limit" if routing.limit_hit else ""
        return f"routed one tree after another{until}: too many variables to solve together"
    if routing.status is SolveStatus.OPTIMAL:
        return None
    if routing.status is SolveStatus.FEASIBLE:
        return "solver stopped at its limit"
    return "greedy trees: the solver found nothing better before its limit"


def _costs(request: PlanRequest, timed: TimedTrees) -> Resources:
    """Routes are judged by what one piece needs on its way and all pieces on the resources."""
    chunk_bytes = request.block_bytes / timed.per_source
    whole = resources(request.sketch, chunk_bytes)
    piece = resources(request.sketch, chunk_bytes / timed.pieces)
    return replace(whole, latency_us=piece.latency_us)
