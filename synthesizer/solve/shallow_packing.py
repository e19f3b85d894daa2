"""Shallow packing: trees with an even load and short paths.

`packing` re-parents single ranks to lower the load of the busiest resource, which leads to long
paths: on machines without symmetry a chunk may cross the network three times instead of once, and
all ranks wait for it. Here all trees grow together, always by the hop with the earliest end, within
a capacity per resource: the load of the bound, in whole chunks. A tree enters each node once, as
its chunk has faster paths inside. When no hop fits, every capacity grows by one chunk.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import ceil

from synthesizer.solve.packing import Load, Packing
from synthesizer.solve.resources import Hop, Resources
from synthesizer.solve.routes import Family, RouteTree

_ROUNDING = 1e-9

_Offer = tuple[float, float, int, Hop]
"""A possible hop: its end, the load of its busiest resource, family, hop."""


def shallow_trees(
    costs: Resources, families: Sequence[Family], node_of_rank: Sequence[int], target_us: float
) -> dict[Family, RouteTree]:
    """Return a spanning tree for every family; every source must reach every rank.

    Args:
        costs: Resources for the size of a chunk.
        families: Families of trees to find.
        node_of_rank: Node of each rank.
        target_us: Lower bound on the load of the busiest resource.
    """
    packing = _ParallelGrowth(costs, families, node_of_rank, target_us)
    packing.grow_all()
    return packing.trees()


class _ParallelGrowth(Packing):
    """Trees that grow at the same time."""

    def __init__(
        self,
        costs: Resources,
        families: Sequence[Family],
        node_of_rank: Sequence[int],
        target_us: float,
    ) -> None:
        super().__init__(costs, families, len(node_of_rank), target_us)
        self._node = node_of_rank
        self._chunk_us = [min(busy) for busy in self._busy_by_class()]
        self._capacity = [ceil(target_us / busy - _ROUNDING) * busy for busy in self._chunk_us]
        self._arrival = [{source: 0.0} for source in self.sources]
        self._entered = [{node_of_rank[source]} for source in self.sources]
        self._offers: list[_Offer] = []
        self._full: list[_Offer] = []
        """Hops beyond the capacity of a resource."""
        self._reentries: list[_Offer] = []
        """Hops into nodes that have the chunk already."""

    def grow_all(self) -> None:
        """Grow all trees."""
        for f, source in enumerate(self.sources):
            self._offer(f, source)
        while self._offers or self._full or self._reentries:
            while self._offers:
                self._try(heapq.heappop(self._offers))
            if self._full:
                pairs = zip(self._capacity, self._chunk_us, strict=True)
                self._capacity = [capacity + busy for capacity, busy in pairs]
                self._offers, self._full = self._still_open(self._full), []
            else:
                # Some nodes have parts that are connected only through other nodes.
                self._entered = [set() for _ in self.sources]
                self._offers, self._reentries = self._still_open(self._reentries), []

    def _busy_by_class(self) -> list[set[float]]:
        found: list[set[float]] = [set() for _ in self.load]
        for of_hop in self.usage:
            for loads in of_hop.values():
                for c, busy in loads:
                    found[c].add(busy)
        return [busy or {1.0} for busy in found]

    def _still_open(self, offers: list[_Offer]) -> list[_Offer]:
        left = [offer for offer in offers if offer[3][1] not in self._arrival[offer[2]]]
        heapq.heapify(left)
        return left

    def _offer(self, f: int, rank: int) -> None:
        for peer in self._onward[rank]:
            if peer not in self._arrival[f]:
                end = self._arrival[f][rank] + self._costs.latency_us[rank, peer]
                loaded = self._loaded(self.usage[f][rank, peer])
                heapq.heappush(self._offers, (end, loaded, f, (rank, peer)))

    def _try(self, offer: _Offer) -> None:
        """Add a hop, or keep it for later."""
        end, loaded, f, (a, b) = offer
        if b in self._arrival[f]:
            return
        if self._node[a] != self._node[b] and self._node[b] in self._entered[f]:
            self._reentries.append(offer)
            return
        usage = self.usage[f][a, b]
        now = self._loaded(usage)
        if now > loaded + _ROUNDING:
            heapq.heappush(self._offers, (end, now, f, (a, b)))
        elif any(self.load[c] + busy > self._capacity[c] * (1 + _ROUNDING) for c, busy in usage):
            self._full.append(offer)
        else:
            self._add(usage, 1)
            self.parents[f][b] = a
            self._arrival[f][b] = end
            self._entered[f].add(self._node[b])
            self._offer(f, b)

    def _loaded(self, usage: Load) -> float:
        return max(self.load[c] for c, _ in usage)
