"""Paths for pairs of ranks that exchange parts, which together balance the loads.

A pair may use a direct path, or relays where that is shorter or less loaded: the peer on the
target's rail, or another rank's NIC. Its block is cut into one chunk per path, and the integer
program assigns chunks to the paths that are at most one hop longer than the shortest; it needs no
big-M.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pulp

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.solve.routes import (
    Family,
    Hop,
    Orbit,
    Resources,
    RouteTree,
    expand,
    least_time_us,
    rank_orbits,
    single,
)
from synthesizer.solve.solver import SolveStatus, add_integer, add_variable, solve
from synthesizer.solve.tree_routing import Routing

MAX_PATHS = 12
"""Most paths per pair, fastest first."""

_EXTRA_HOPS = 1

_POWER = 20
"""Exponent of loads relative to the busiest resource when paths are evened."""

_MOST_SWEEPS = 10
"""Most sweeps over all pairs that give single chunks another path."""

_GAIN = 1e-9


@dataclass(frozen=True)
class PairRouting:
    """Paths of all pairs; those of a pair are consecutive."""

    routing: Routing
    targets: tuple[int, ...]
    """End of each path."""
    paths_per_pair: int


def pairs_of(collective: Collective, sketch: Sketch, root: int = 0) -> list[tuple[Orbit, int]]:
    """Return the pairs of ranks that exchange parts, as sources, up to symmetry, with targets."""
    ranks = range(sketch.ranks)
    if collective.from_root:
        return [(single(root, sketch.ranks), target) for target in ranks if target != root]
    if collective.to_root:
        return [(single(source, sketch.ranks), root) for source in ranks if source != root]
    return [
        (orbit, target)
        for orbit in rank_orbits(sketch)
        for target in ranks
        if target != orbit.representative
    ]


def route_pairs(
    pairs: Sequence[tuple[Orbit, int]],
    costs: Resources,
    time_limit_s: float,
    gap: float,
    paths_per_pair: int = 1,
) -> PairRouting:
    """Choose paths from sources, up to symmetry, to targets; a path may count twice.

    A pair's block has a chunk for each path. The limit of the work is in seconds of an idle core;
    the solver may stop at the relative `gap`.

    Raises:
        ScheduleError: No solver works.
    """
    paths = [_paths(costs, orbit.representative, target) for orbit, target in pairs]
    problem, counts = _program(costs, [orbit for orbit, _ in pairs], paths, paths_per_pair)
    outcome = solve(problem, time_limit_s, gap)
    trees = {}
    for (orbit, target), found_paths, count in zip(pairs, paths, counts, strict=True):
        chosen = found_paths[:1] * paths_per_pair
        if outcome.solved:
            chosen = [
                path
                for path, number in zip(found_paths, count, strict=True)
                for _ in range(round(number.varValue))
            ]
        for number, path in enumerate(chosen):
            family = Family(orbit, target * paths_per_pair + number)
            trees[family] = RouteTree(orbit.representative, path)
    found = expand(trees)
    bound = outcome.bound if outcome.bound == outcome.bound else 0.0
    limit_hit = outcome.status is not SolveStatus.OPTIMAL
    least_us = least_time_us(found, costs)
    cut = outcome.cut_by_clock
    routing = Routing(found, least_us, bound, outcome.status, limit_hit, cut)
    return PairRouting(routing, tuple(tree.hops[-1][1] for tree in found), paths_per_pair)


def evened_pairs(
    pairs: Sequence[tuple[Orbit, int]], costs: Resources, found: PairRouting
) -> PairRouting:
    """Return routes whose other resources are relieved as well as the busiest ones.

    The integer program leaves a resource as busy as the busiest one allows. Then messages that
    wait there for each other delay the end. Here chunks change their paths while a sum of powers
    of the loads decreases; no path becomes longer than the longest, and the busiest resource stays
    no busier.
    """
    per_pair = found.paths_per_pair
    longest_us = max(_latency_us(costs, tree.hops) for tree in found.routing.trees)
    total = np.array(costs.loads_us(hop for tree in found.routing.trees for hop in tree.hops))
    of_pair = _chosen(pairs, found)
    options = []
    for orbit, target in pairs:
        paths = [
            path
            for path in _paths(costs, orbit.representative, target)
            if _latency_us(costs, path) <= longest_us * (1 + _GAIN)
        ]
        options.append((paths, np.array([_image_loads_us(costs, orbit, path) for path in paths])))
    for _ in range(_MOST_SWEEPS):
        moved = False
        for (paths, loads), chosen in zip(options, of_pair, strict=True):
            for number, path in enumerate(chosen):
                after = total - loads[paths.index(path)] + loads
                powers = ((after / total.max()) ** _POWER).sum(axis=1)
                least = int(powers.argmin())
                now = ((total / total.max()) ** _POWER).sum()
                if powers[least] < now * (1 - _GAIN) and after[least].max() <= total.max():
                    chosen[number], total, moved = paths[least], after[least], True
        if not moved:
            break
    trees = {
        Family(orbit, target * per_pair + number): RouteTree(orbit.representative, path)
        for (orbit, target), chosen in zip(pairs, of_pair, strict=True)
        for number, path in enumerate(sorted(chosen))
    }
    routes = expand(trees)
    routing = replace(found.routing, trees=routes, least_time_us=least_time_us(routes, costs))
    return PairRouting(routing, tuple(tree.hops[-1][1] for tree in routes), per_pair)


def _chosen(pairs: Sequence[tuple[Orbit, int]], found: PairRouting) -> list[list[tuple[Hop, ...]]]:
    """Return the paths of each pair of a representative, which are consecutive."""
    of_ends: dict[tuple[int, int], list[tuple[Hop, ...]]] = defaultdict(list)
    for tree in found.routing.trees:
        of_ends[tree.source, tree.hops[-1][1]].append(tree.hops)
    return [of_ends[orbit.representative, target] for orbit, target in pairs]


def _latency_us(costs: Resources, path: Sequence[Hop]) -> float:
    return sum(costs.latency_us[hop] for hop in path)


def _image_loads_us(costs: Resources, orbit: Orbit, path: tuple[Hop, ...]) -> list[float]:
    """Return the time for which a path and its images occupy each resource."""
    return costs.loads_us((image[a], image[b]) for image in orbit.images for a, b in path)


def _program(
    costs: Resources,
    orbits: Sequence[Orbit],
    paths: Sequence[Sequence[tuple[Hop, ...]]],
    paths_per_pair: int,
) -> tuple[pulp.LpProblem, list[list[pulp.LpVariable]]]:
    """Return the integer program, and per pair the numbers of chunks on its paths as variables."""
    problem = pulp.LpProblem("pairs", pulp.LpMinimize)
    end = add_variable(problem, "T")
    problem.setObjective(end + 0)
    loads: dict[int, dict[pulp.LpVariable, float]] = defaultdict(lambda: defaultdict(float))
    counts: list[list[pulp.LpVariable]] = []
    for f, (orbit, options) in enumerate(zip(orbits, paths, strict=True)):
        count = [add_integer(problem, f"y_{f}_{p}", paths_per_pair) for p in range(len(options))]
        counts.append(count)
        problem += pulp.lpSum(count) == paths_per_pair
        latencies = [_latency_us(costs, path) / paths_per_pair for path in options]
        problem += end >= pulp.lpSum(t * y for t, y in zip(latencies, count, strict=True))
        for path, number in zip(options, count, strict=True):
            for a, b in path:
                for image in orbit.images:
                    for resource in costs.of_edge[image[a], image[b]]:
                        loads[resource][number] += costs.busy_us[resource]
    rows = set()
    for resource, uses in sorted(loads.items()):
        row = (costs.least_alpha_us[resource], tuple((y.name, busy) for y, busy in uses.items()))
        # Resources that are equivalent by symmetry give one row.
        if row not in rows:
            rows.add(row)
            load = pulp.lpSum(busy * number for number, busy in uses.items())
            problem += end >= load + costs.least_alpha_us[resource]
    return problem, counts


def _paths(costs: Resources, source: int, target: int) -> list[tuple[Hop, ...]]:
    """Return simple paths from source to target, fastest first."""
    onward: dict[int, list[int]] = defaultdict(list)
    backward: dict[int, list[int]] = defaultdict(list)
    for a, b in costs.of_edge:
        onward[a].append(b)
        backward[b].append(a)
    distance = _hops_to(backward, target)
    limit = distance[source] + _EXTRA_HOPS
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
            if rank not in path and rank in distance and len(path) + distance[rank] <= limit
        ]
    found.sort(key=lambda path: (_latency_us(costs, path), path))
    return found[:MAX_PATHS]


def _hops_to(backward: dict[int, list[int]], target: int) -> dict[int, int]:
    distance = {target: 0}
    queue = [target]
    for rank in queue:
        for before in backward[rank]:
            if before not in distance:
                distance[before] = distance[rank] + 1
                queue.append(before)
    return distance
