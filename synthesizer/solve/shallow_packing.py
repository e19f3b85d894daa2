"""Shallow packing: trees that load the machine evenly without long ways.

`packing` moves single ranks about until the busiest resource is relieved, and what comes of it
hangs together in long ways: on machines without symmetry a chunk crosses the network three times
where once would do, and everybody waits for it. Here all trees grow together, always by the hop
that ends soonest, as long as its resources have room: what the bound puts on them, in whole chunks.
A tree enters each node once, from then on its chunk has faster ways there. Where no hop has room
left, all resources get room for one chunk more.
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
"""A hop that could be taken: when it ends, load of the busiest of its resources, family, hop."""


def shallow_trees(
    costs: Resources, families: Sequence[Family], node_of_rank: Sequence[int], target_us: float
) -> dict[Family, RouteTree]:
    """A spanning tree for every family; every source must reach every rank.

    Args:
        costs: Resources for the size of a chunk.
        families: Trees to be found.
        node_of_rank: Of all ranks.
        target_us: Load of the busiest resource that no choice can undercut.
    """
    packing = _Together(costs, families, node_of_rank, target_us)
    packing.grow_all()
    return packing.trees()


class _Together(Packing):
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
        self._room = [ceil(target_us / busy - _ROUNDING) * busy for busy in self._chunk_us]
        self._arrival = [{source: 0.0} for source in self.sources]
        self._entered = [{node_of_rank[source]} for source in self.sources]
        self._offers: list[_Offer] = []
        self._full: list[_Offer] = []
        """Hops without room."""
        self._again: list[_Offer] = []
        """Hops into nodes that have the chunk."""

    def grow_all(self) -> None:
        """Lays all trees."""
        for f, source in enumerate(self.sources):
            self._offer(f, source)
        while self._offers or self._full or self._again:
            while self._offers:
                self._try(heapq.heappop(self._offers))
            if self._full:
                self._room = [
                    room + busy for room, busy in zip(self._room, self._chunk_us, strict=True)
                ]
                self._offers, self._full = self._still_open(self._full), []
            else:
                # Parts of a node that only other nodes connect.
                self._entered = [set() for _ in self.sources]
                self._offers, self._again = self._still_open(self._again), []

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
        for other in self._onward[rank]:
            if other not in self._arrival[f]:
                end = self._arrival[f][rank] + self._costs.latency_us[rank, other]
                loaded = self._loaded(self.usage[f][rank, other])
                heapq.heappush(self._offers, (end, loaded, f, (rank, other)))

    def _try(self, offer: _Offer) -> None:
        """Takes a hop, or keeps it for later."""
        end, loaded, f, (a, b) = offer
        if b in self._arrival[f]:
            return
        if self._node[a] != self._node[b] and self._node[b] in self._entered[f]:
            self._again.append(offer)
            return
        usage = self.usage[f][a, b]
        now = self._loaded(usage)
        if now > loaded + _ROUNDING:
            heapq.heappush(self._offers, (end, now, f, (a, b)))
        elif any(self.load[c] + busy > self._room[c] * (1 + _ROUNDING) for c, busy in usage):
            self._full.append(offer)
        else:
            self._add(usage, 1)
            self.parents[f][b] = a
            self._arrival[f][b] = end
            self._entered[f].add(self._node[b])
            self._offer(f, b)

    def _loaded(self, usage: Load) -> float:
        return max(self.load[c] for c, _ in usage)
