"""Even trees of few hops from one root, down which pieces follow each other.

Pieces that follow each other keep the ports busy, so a call takes the time of the busiest port,
plus the time of the last piece down its tree. This program looks for a given number of trees that
load no port more than allowed and have at most a given number of hops from the root to any rank.
x[tree, hop, layer] is 1 if the tree takes the hop as its `layer`-th from the root; every rank but
the root is entered once, and left in the layer after. Layers need no arrival times, so the
relaxation is far tighter than that of `tree_routing`, and knows at once what is too shallow.
"""

from __future__ import annotations

from collections import defaultdict

import pulp

from synthesizer.solve.routes import Hop, Resources, RouteTree, tree_from_hops
from synthesizer.solve.solver import add_binary, solve

_GAP = 0.1
"""Gap of the mean layer: shallow branches are welcome, not needed."""


def layered_trees(
    costs: Resources, root: int, count: int, layers: int, most_us: float, time_limit_s: float
) -> tuple[RouteTree, ...] | None:
    """Return `count` trees that load no port for more than `most_us`; None if none were found.

    `costs` are for the chunk of one tree. The limit of the work is in seconds of an idle core.

    Raises:
        ScheduleError: No solver works.
    """
    problem = pulp.LpProblem("layers", pulp.LpMinimize)
    taken = {
        (tree, hop, layer): add_binary(problem, f"x_{tree}_{hop[0]}_{hop[1]}_{layer}")
        for tree in range(count)
        for hop in costs.of_edge
        for layer in range(1, layers + 1)
        if hop[1] != root and (hop[0] == root) == (layer == 1)
    }
    into: dict[tuple[int, int], list[pulp.LpVariable]] = defaultdict(list)
    entered: dict[tuple[int, int, int], list[pulp.LpVariable]] = defaultdict(list)
    loads: dict[int, list[pulp.LpVariable]] = defaultdict(list)
    for (tree, hop, layer), variable in taken.items():
        into[tree, hop[1]].append(variable)
        entered[tree, hop[1], layer].append(variable)
        for resource in costs.of_edge[hop]:
            loads[resource].append(variable)
    problem.setObjective(pulp.lpSum(layer * x for (_, _, layer), x in taken.items()))
    for variables in into.values():
        problem += pulp.lpSum(variables) == 1
    for (tree, hop, layer), variable in taken.items():
        if layer > 1:
            problem += variable <= pulp.lpSum(entered[tree, hop[0], layer - 1])
    for resource, variables in loads.items():
        problem += pulp.lpSum(variables) <= int(most_us / costs.busy_us[resource] + 1e-6)
    if not solve(problem, time_limit_s, _GAP).solved:
        return None
    hops: dict[int, list[Hop]] = defaultdict(list)
    for (tree, hop, _), variable in taken.items():
        if variable.varValue > 0.5:
            hops[tree].append(hop)
    return tuple(tree_from_hops(root, hops[tree]) for tree in range(count))
