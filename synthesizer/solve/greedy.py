"""Greedy routing: the integer program's horizon, and what stands in where it finds nothing in time.

All trees are laid at once over time: each step takes the hop that brings some chunk to a new rank
soonest, in the way of TACOS, but deterministic, with shared ports, and with no more messages on
their way on a connection than its FIFO holds. The images of a hop occupy their resources together
with it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence

from synthesizer.simulate.simulator import ExecutionModel
from synthesizer.solve.resources import Hop, Resources
from synthesizer.solve.routes import Family, RouteTree

FIFO_SLOTS = ExecutionModel().fifo_slots
"""Messages on their way on one connection."""


def soonest_trees(
    costs: Resources, families: Sequence[Family], ranks: int, slots: int = FIFO_SLOTS
) -> dict[Family, RouteTree]:
    """A spanning tree for every family; every source must reach every rank.

    Args:
        costs: Resources for the size of a chunk.
        families: Trees to be found.
        ranks: Number of ranks.
        slots: Chunks on their way on one connection. Fewer than its FIFO holds leave room for
            chunks to be cut, and spread them over more connections.
    """
    growth = _Growth(costs, families, slots)
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
    """Trees as they grow, and until when each resource and each FIFO is taken."""

    def __init__(self, costs: Resources, families: Sequence[Family], slots: int) -> None:
        sources = [family.orbit.representative for family in families]
        self.arrival: list[dict[int, float]] = [{source: 0.0} for source in sources]
        self.hops: list[list[Hop]] = [[] for _ in families]
        self.queue: list[tuple[float, int, int, int]] = []
        """(promised end, family, sender, receiver); promises may have become too early."""
        self._costs = costs
        self._slots = slots
        self._onward = _onward(costs)
        self._free = [0.0] * len(costs.names)
        self._arrivals: dict[Hop, list[float]] = defaultdict(list)
        """When each message that a connection has taken arrives."""
        uses = {family.orbit: _Uses(costs, family) for family in families}
        self._uses = [uses[family.orbit] for family in families]
        for f, source in enumerate(sources):
            self._offer(f, source)

    def finish(self, f: int, hop: Hop) -> float:
        """When a hop would end if it were taken next."""
        begin = self.arrival[f][hop[0]]
        for resource, _ in self._uses[f].busy[hop]:
            begin = max(begin, self._free[resource])
        for connection, messages in self._uses[f].messages[hop]:
            taken = self._arrivals[connection]
            # The last of the messages waits until one as many places before it has arrived.
            before = max(self._slots + 1 - messages, 1)
            if before <= len(taken):
                begin = max(begin, taken[-before])
        return begin + self._costs.latency_us[hop]

    def take(self, f: int, hop: Hop, end_us: float) -> None:
        """Adds a hop to a tree, together with its images."""
        begin = end_us - self._costs.latency_us[hop]
        for resource, busy in self._uses[f].busy[hop]:
            self._free[resource] = max(self._free[resource], begin) + busy
        for connection, messages in self._uses[f].messages[hop]:
            self._arrivals[connection] += [end_us] * messages
        self.arrival[f][hop[1]] = end_us
        self.hops[f].append(hop)
        self._offer(f, hop[1])

    def _offer(self, f: int, rank: int) -> None:
        for other in self._onward.get(rank, ()):
            if other not in self.arrival[f]:
                heapq.heappush(self.queue, (self.finish(f, (rank, other)), f, rank, other))


class _Uses:
    """What the images of each hop use together, for the trees of one orbit."""

    def __init__(self, costs: Resources, family: Family) -> None:
        self.busy: dict[Hop, tuple[tuple[int, float], ...]] = {}
        """(resource, time that it is occupied)."""
        self.messages: dict[Hop, tuple[tuple[Hop, int], ...]] = {}
        """(connection, messages that it takes)."""
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
