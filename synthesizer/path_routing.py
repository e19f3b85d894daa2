"""Alltoall: one path per ordered pair of ranks, chosen together so that no resource is overrun.

A pair may go directly, or through relays where that is shorter or less busy: through the peer on
the target's rail, or out over another rank's NIC. The integer program picks one path per pair from
those that are at most one hop longer than the shortest; it needs no big-M.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import pulp

from sketches.sketch import Sketch
from synthesizer.orbits import rank_orbits
from synthesizer.resources import Hop, Resources
from synthesizer.routes import Family, RouteTree, expand, least_time_us
from synthesizer.routing import Routing
from synthesizer.solver import SolveStatus, add_binary, add_variable, solve

MAX_PATHS = 12
"""Paths considered per pair, fastest first."""

_EXTRA_HOPS = 1


@dataclass(frozen=True)
class PairRouting:
    """A path per ordered pair, and where each ends."""

    routing: Routing
    targets: tuple[int, ...]


def route_pairs(sketch: Sketch, costs: Resources, time_limit_s: float, gap: float) -> PairRouting:
    """Chooses a path for every ordered pair of ranks.

    Raises:
        SolverError: No solver works.
    """
    families = [
        Family(orbit, target)
        for orbit in rank_orbits(sketch)
        for target in range(sketch.ranks)
        if target != orbit.representative
    ]
    paths = {
        family: _paths(costs, family.orbit.representative, family.index) for family in families
    }
    problem, chosen = _program(costs, paths)
    outcome = solve(problem, time_limit_s, gap)
    trees = {}
    for family, options in chosen.items():
        best = 0
        if outcome.solved:
            values = [option.varValue for option in options]
            best = values.index(max(values))
        trees[family] = RouteTree(family.orbit.representative, paths[family][best])
    found = expand(trees)
    bound = outcome.bound if outcome.bound == outcome.bound else 0.0
    limit_hit = outcome.status is not SolveStatus.OPTIMAL
    routing = Routing(found, least_time_us(found, costs), bound, outcome.status, limit_hit)
    return PairRouting(routing, tuple(tree.hops[-1][1] for tree in found))


def _program(
    costs: Resources, paths: dict[Family, list[tuple[Hop, ...]]]
) -> tuple[pulp.LpProblem, dict[Family, list[pulp.LpVariable]]]:
    """The integer program, and per pair the variables that choose its path."""
    problem = pulp.LpProblem("pairs", pulp.LpMinimize)
    end = add_variable(problem, "T")
    problem.setObjective(end + 0)
    loads: dict[int, dict[pulp.LpVariable, float]] = defaultdict(lambda: defaultdict(float))
    chosen: dict[Family, list[pulp.LpVariable]] = {}
    for f, (family, ways) in enumerate(paths.items()):
        options = [add_binary(problem, f"y_{f}_{p}") for p in range(len(ways))]
        chosen[family] = options
        problem += pulp.lpSum(options) == 1
        latencies = [sum(costs.latency_us[hop] for hop in way) for way in ways]
        problem += end >= pulp.lpSum(t * y for t, y in zip(latencies, options, strict=True))
        for way, option in zip(ways, options, strict=True):
            for hop in way:
                for image in family.image_hops(hop):
                    for resource in costs.of_edge[image]:
                        loads[resource][option] += costs.busy_us[resource]
    for resource, uses in sorted(loads.items()):
        load = pulp.lpSum(busy * option for option, busy in uses.items())
        problem += end >= load + costs.least_alpha_us[resource]
    return problem, chosen


def _paths(costs: Resources, source: int, target: int) -> list[tuple[Hop, ...]]:
    """Simple paths from source to target, fastest first."""
    onward: dict[int, list[int]] = defaultdict(list)
    backward: dict[int, list[int]] = defaultdict(list)
    for a, b in costs.of_edge:
        onward[a].append(b)
        backward[b].append(a)
    away = _hops_to(backward, target)
    limit = away[source] + _EXTRA_HOPS
    found: list[tuple[Hop, ...]] = []
    stack: list[tuple[int, ...]] = [(source,)]
    while stack:
        path = stack.pop()
        if path[-1] == target:
            found.append(tuple(pairwise(path)))
            continue
        stack += [
            (*path, rank)
            for rank in onward[path[-1]]
            if rank not in path and rank in away and len(path) + away[rank] <= limit
        ]
    found.sort(key=lambda path: (sum(costs.latency_us[hop] for hop in path), path))
    return found[:MAX_PATHS]


def _hops_to(backward: dict[int, list[int]], target: int) -> dict[int, int]:
    away = {target: 0}
    queue = [target]
    for rank in queue:
        for before in backward[rank]:
            if before not in away:
                away[before] = away[rank] + 1
                queue.append(before)
    return away
