"""Planning of alltoall: paths of all pairs and their timetable for one size.

More paths per pair balance the load better and cost steps, so they are tried only where fewer paths
miss the bound and the loads matter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from synthesizer.plan.plan_request import PlanRequest, good_enough, load_matters
from synthesizer.plan.timetabling import LEAST_PIECE_BYTES, Rehearsed, rehearse
from synthesizer.plan.tree_planning import Plan
from synthesizer.solve.path_routing import PairRouting, route_pairs
from synthesizer.solve.resources import resources
from synthesizer.solve.solver import CUT_BY_CLOCK, SolveStatus


@dataclass(frozen=True)
class PairPlan:
    """A plan whose trees are paths."""

    plan: Plan
    pairs: PairRouting


def plan_pairs(request: PlanRequest) -> PairPlan:
    """Return the best plan of alltoall; `request.trees` are the numbers of paths per pair to try.

    Raises:
        SolverError: No solver works.
    """
    best: tuple[Rehearsed, PairRouting] | None = None
    seconds = {"greedy": 0.0, "routing": 0.0, "ordering": 0.0}
    for paths_per_pair in request.trees:
        if best and request.block_bytes < paths_per_pair * LEAST_PIECE_BYTES:
            break
        started = time.perf_counter()
        costs = resources(request.sketch, request.block_bytes / paths_per_pair)
        limit_s = request.time_limit_s / len(request.trees)
        pairs = route_pairs(request.sketch, costs, limit_s, request.gap, paths_per_pair)
        routed = time.perf_counter()
        load_us = max(costs.loads_us(hop for path in pairs.routing.trees for hop in path.hops))
        if best is None or load_us < best[0].end_us:
            rehearsed = rehearse(request, paths_per_pair, pairs.routing.trees)
            if best is None or rehearsed.end_us < best[0].end_us:
                best = rehearsed, pairs
        seconds["routing"] += routed - started
        seconds["ordering"] += time.perf_counter() - routed
        end_us = best[0].end_us
        if good_enough(request, end_us) or not load_matters(request, load_us, end_us):
            break
    if best is None:
        msg = "a plan needs a number of ways to try"
        raise ValueError(msg)
    rehearsed, pairs = best
    optimal = pairs.routing.status is SolveStatus.OPTIMAL
    fallback = None if optimal else "the solver stopped at its limit"
    if fallback and pairs.routing.cut_by_clock:
        fallback = f"{fallback}; {CUT_BY_CLOCK}"
    plan = Plan(rehearsed.timed, pairs.routing, fallback, seconds, rehearsed.end_us)
    return PairPlan(plan, pairs)
