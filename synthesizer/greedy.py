"""Greedy routing: the integer program's horizon, and what stands in where it finds nothing in time.

All trees are laid at once over time: each step takes the hop that brings some chunk to a new rank
soonest, in the way of TACOS, but deterministic and with shared ports. The images of a hop occupy
their resources together with it.
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
    growth = _Growth(costs, families)
    missing = len(families) * (ranks - 1)
    while missing and growth.queue:
        promised, f, a, b = heapq.heappop(growth.queue)
        if b in growth.arrival[f]:
            continue
        now = growth.finish(f, (a, b))
        if now > promised:
            heapq.heappush(growth.queue, (now, f, a, b))
            continue
        growth.take(f, (a, b), now)
        missing -= 1
    return {
        family: RouteTree(family.orbit.representative, tuple(growth.hops[f]))
        for f, family in enumerate(families)
    }


class _Growth:
    """Trees as they grow, and until when each resource is taken."""

    def __init__(self, costs: Resources, families: Sequence[Family]) -> None:
        sources = [family.orbit.representative for family in families]
        self.arrival: list[dict[int, float]] = [{source: 0.0} for source in sources]
        self.hops: list[list[Hop]] = [[] for _ in families]
        self.queue: list[tuple[float, int, int, int]] = []
        """(promised end, family, sender, receiver); promises may have become too early."""
        self._costs = costs
        self._onward = _onward(costs)
        self._free = [0.0] * len(costs.names)
        self._usage = {
            (f, hop): _usage(costs, family, hop)
            for f, family in enumerate(families)
            for hop in costs.of_edge
        }
        for f, source in enumerate(sources):
            self._offer(f, source)

    def finish(self, f: int, hop: Hop) -> float:
        """When a hop would end if it were taken next."""
        free = (self._free[resource] for resource, _ in self._usage[f, hop])
        return max([self.arrival[f][hop[0]], *free]) + self._costs.latency_us[hop]

    def take(self, f: int, hop: Hop, end_us: float) -> None:
        """Adds a hop to a tree, together with its images."""
        begin = end_us - self._costs.latency_us[hop]
        for resource, busy in self._usage[f, hop]:
            self._free[resource] = max(self._free[resource], begin) + busy
        self.arrival[f][hop[1]] = end_us
        self.hops[f].append(hop)
        self._offer(f, hop[1])

    def _offer(self, f: int, rank: int) -> None:
        for other in self._onward.get(rank, ()):
            if other not in self.arrival[f]:
                heapq.heappush(self.queue, (self.finish(f, (rank, other)), f, rank, other))


def _onward(costs: Resources) -> dict[int, list[int]]:
    onward: dict[int, list[int]] = {}
    for a, b in costs.of_edge:
        onward.setdefault(a, []).append(b)
    return onward


def _usage(costs: Resources, family: Family, hop: Hop) -> tuple[tuple[int, float], ...]:
    """(resource, time) that all images of a hop occupy."""
    total: dict[int, float] = {}
    for other in family.image_hops(hop):
        for resource in costs.of_edge[other]:
            total[resource] = total.get(resource, 0.0) + costs.busy_us[resource]
    return tuple(sorted(total.items()))
