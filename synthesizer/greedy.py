"""Greedy routing: the integer program's horizon, and what stands in where it finds nothing in time.

`soonest_trees` lays all trees at once over time: each step takes the hop that brings some chunk to
a new rank soonest, in the way of TACOS, but deterministic and with shared ports. `balanced_trees`
lays one tree after another and each hop where the busiest resource stays least busy: long chains,
good for large sizes. In both the images of a hop occupy their resources together with it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from synthesizer.resources import Hop, Resources
from synthesizer.routes import Family, RouteTree


def soonest_trees(
    costs: Resources, families: Sequence[Family], ranks: int
) -> dict[Family, RouteTree]:
    """A spanning tree for every family; every source must reach every rank."""
    onward: dict[int, list[int]] = {}
    for a, b in costs.of_edge:
        onward.setdefault(a, []).append(b)
    free = [0.0] * len(costs.names)
    arrival: dict[Family, dict[int, float]] = {
        family: {family.orbit.representative: 0.0} for family in families
    }
    hops: dict[Family, list[Hop]] = {family: [] for family in families}
    # What all images of a hop occupy together, once per family and edge.
    usage = {
        (f, hop): _usage(costs, family, hop)
        for f, family in enumerate(families)
        for hop in costs.of_edge
    }

    def finish(f: int, hop: Hop) -> float:
        start = arrival[families[f]][hop[0]]
        start = max([start, *(free[resource] for resource, _ in usage[f, hop])])
        return start + costs.latency_us[hop]

    queue = [
        (finish(f, (family.orbit.representative, b)), f, family.orbit.representative, b)
        for f, family in enumerate(families)
        for b in onward.get(family.orbit.representative, ())
    ]
    heapq.heapify(queue)
    missing = len(families) * (ranks - 1)
    while missing and queue:
        promised, f, a, b = heapq.heappop(queue)
        reached = arrival[families[f]]
        if b in reached:
            continue
        now = finish(f, (a, b))
        if now > promised:
            heapq.heappush(queue, (now, f, a, b))
            continue
        begin = now - costs.latency_us[a, b]
        for resource, busy in usage[f, (a, b)]:
            free[resource] = max(free[resource], begin) + busy
        reached[b] = now
        hops[families[f]].append((a, b))
        missing -= 1
        for c in onward.get(b, ()):
            if c not in reached:
                heapq.heappush(queue, (finish(f, (b, c)), f, b, c))
    return {
        family: RouteTree(family.orbit.representative, tuple(hops[family])) for family in families
    }


def balanced_trees(costs: Resources, families: Sequence[Family]) -> dict[Family, RouteTree]:
    """A spanning tree for every family; every source must reach every rank."""
    onward: dict[int, list[int]] = {}
    for a, b in costs.of_edge:
        onward.setdefault(a, []).append(b)
    load = [0.0] * len(costs.names)
    return {family: _balanced_tree(costs, family, onward, load) for family in families}


def _balanced_tree(
    costs: Resources, family: Family, onward: dict[int, list[int]], load: list[float]
) -> RouteTree:
    """One tree laid over the loads so far, which it adds to."""
    usage = {hop: _usage(costs, family, hop) for hop in costs.of_edge}
    source = family.orbit.representative
    arrival = {source: 0.0}
    hops: list[Hop] = []
    frontier = {(source, b) for b in onward.get(source, ())}

    def worth(hop: Hop) -> tuple[float, float, Hop]:
        busiest = max(load[resource] + busy for resource, busy in usage[hop])
        return busiest, arrival[hop[0]] + costs.latency_us[hop], hop

    while frontier:
        a, b = min(frontier, key=worth)
        for resource, busy in usage[a, b]:
            load[resource] += busy
        arrival[b] = arrival[a] + costs.latency_us[a, b]
        hops.append((a, b))
        frontier |= {(b, c) for c in onward.get(b, ())}
        frontier = {hop for hop in frontier if hop[1] not in arrival}
    return RouteTree(source, tuple(hops))


def _usage(costs: Resources, family: Family, hop: Hop) -> tuple[tuple[int, float], ...]:
    """(resource, time) that all images of a hop occupy."""
    total: dict[int, float] = {}
    for other in family.image_hops(hop):
        for resource in costs.of_edge[other]:
            total[resource] = total.get(resource, 0.0) + costs.busy_us[resource]
    return tuple(sorted(total.items()))
