"""Greedy routing: the integer program's horizon, and its fallback at the time limit.

All trees grow together over time: each step adds the hop with the earliest arrival of any chunk at
a new rank, as in TACOS, but deterministic, with shared ports, and with no more messages in flight
on a connection than its FIFO holds. The images of a hop occupy their resources together with it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence

from synthesizer.simulate.simulator import ExecutionModel
from synthesizer.solve.routes import Family, Hop, Resources, RouteTree

FIFO_SLOTS = ExecutionModel().fifo_slots
"""Most messages in flight on a connection."""


def soonest_trees(
    costs: Resources, families: Sequence[Family], ranks: int, slots: int = FIFO_SLOTS
) -> dict[Family, RouteTree]:
    """Return an earliest-arrival spanning tree per family; every source must reach every rank.

    Fewer `slots` than the FIFO of a connection holds leave slots for pieces of chunks, and spread
    chunks over more connections.
    """
    growth = _Growth(costs, families, slots)
    missing = len(families) * (ranks - 1)
    while missing and growth.queue:
        estimate, f, a, b = heapq.heappop(growth.queue)
        if b in growth.arrival[f]:
            continue
        end_us = growth.finish(f, (a, b))
        if end_us > estimate:
            heapq.heappush(growth.queue, (end_us, f, a, b))
            continue
        growth.take(f, (a, b), end_us)
        missing -= 1
    return {
        family: RouteTree(family.orbit.representative, tuple(growth.hops[f]))
        for f, family in enumerate(families)
    }


class _Growth:
    """Growing trees, and the time until which each resource and each FIFO is occupied."""

    def __init__(self, costs: Resources, families: Sequence[Family], slots: int) -> None:
        sources = [family.orbit.representative for family in families]
        self.arrival: list[dict[int, float]] = [{source: 0.0} for source in sources]
        self.hops: list[list[Hop]] = [[] for _ in families]
        self.queue: list[tuple[float, int, int, int]] = []
        """(estimated end, family, sender, receiver); an estimate may be too early by now."""
        self._costs = costs
        self._slots = slots
        self._onward = _onward(costs)
        self._free = [0.0] * len(costs.names)
        self._arrivals: dict[Hop, list[float]] = defaultdict(list)
        """Arrival times of the messages of each connection."""
        uses = {family.orbit: _Uses(costs, family) for family in families}
        self._uses = [uses[family.orbit] for family in families]
        for f, source in enumerate(sources):
            self._offer(f, source)

    def finish(self, f: int, hop: Hop) -> float:
        """Return the end of a hop if it were added next."""
        begin = self.arrival[f][hop[0]]
        for resource, _ in self._uses[f].busy[hop]:
            begin = max(begin, self._free[resource])
        for connection, messages in self._uses[f].messages[hop]:
            taken = self._arrivals[connection]
            # The last of the messages waits until the one `slots` before it has arrived.
            before = max(self._slots + 1 - messages, 1)
            if before <= len(taken):
                begin = max(begin, taken[-before])
        return begin + self._costs.latency_us[hop]

    def take(self, f: int, hop: Hop, end_us: float) -> None:
        """Add a hop to a tree, together with its images."""
        begin = end_us - self._costs.latency_us[hop]
        for resource, busy in self._uses[f].busy[hop]:
            self._free[resource] = max(self._free[resource], begin) + busy
        for connection, messages in self._uses[f].messages[hop]:
            self._arrivals[connection] += [end_us] * messages
        self.arrival[f][hop[1]] = end_us
        self.hops[f].append(hop)
        self._offer(f, hop[1])

    def _offer(self, f: int, rank: int) -> None:
        for peer in self._onward.get(rank, ()):
            if peer not in self.arrival[f]:
                heapq.heappush(self.queue, (self.finish(f, (rank, peer)), f, rank, peer))


class _Uses:
    """The combined use of resources by the images of each hop, for the trees of one orbit."""

    def __init__(self, costs: Resources, family: Family) -> None:
        self.busy: dict[Hop, tuple[tuple[int, float], ...]] = {}
        """(resource, time for which it is occupied) of each hop."""
        self.messages: dict[Hop, tuple[tuple[Hop, int], ...]] = {}
        """(connection, number of messages) of each hop."""
        for hop in costs.of_edge:
            images = Counter(family.image_hops(hop))
            total: dict[int, float] = defaultdict(float)
            for image, count in images.items():
                for resource in costs.of_edge[image]:
                    total[resource] += count * costs.busy_us[resource]
            self.busy[hop] = tuple(sorted(total.items()))
            self.messages[hop] = tuple(images.items())


def _onward(costs: Resources) -> dict[int, list[int]]:
    onward: dict[int, list[int]] = {}
    for a, b in costs.of_edge:
        onward.setdefault(a, []).append(b)
    return onward
