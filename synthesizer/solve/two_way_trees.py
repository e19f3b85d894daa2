"""Two-way trees: the trees along which a chunk is summed up to a root and spread from there.

A tree grows where the price of its hops and the time until its last arrival increase least, then
single ranks are re-parented while that lowers either without raising their sum.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from synthesizer.solve.cheapest_tree import cheapest_tree
from synthesizer.solve.resources import Hop
from synthesizer.solve.routes import tree_from_hops

_DELAY_WEIGHT = 0.3
"""Weight of a rank's arrival beside the price of the hop into it."""

_MOST_SWEEPS = 4
"""Most sweeps over all ranks that re-parent them."""

_GAIN = 1e-9


@dataclass(frozen=True, slots=True)
class TwoWayTree:
    """Hops of one chunk of an all_reduce, in travel order."""

    root: int
    up: tuple[Hop, ...]
    """Hops of partial sums, each after the hops into its sender."""
    down: tuple[Hop, ...]
    """Hops of the sum, each after the hop into its sender."""


class Spanning:
    """Grows spanning trees over hops that lead away from a root.

    Args:
        hops: Possible hops; for trees towards a root, reversed.
        latency_us: Latency of each of these hops.
    """

    def __init__(self, hops: Collection[Hop], latency_us: Mapping[Hop, float]) -> None:
        self._latency_us = latency_us
        self._ranks = 1 + max(rank for hop in hops for rank in hop)
        self._onward: dict[int, list[int]] = defaultdict(list)
        self._into: dict[int, list[int]] = defaultdict(list)
        for a, b in hops:
            self._onward[a].append(b)
            self._into[b].append(a)

    def tree(self, root: int, price: Mapping[Hop, float]) -> tuple[Hop, ...]:
        """Return a tree with a low sum of prices and early arrivals, in travel order."""
        parent = self._grown(root, price)
        for _ in range(_MOST_SWEEPS):
            if not self._swept(root, parent, price):
                break
        return tree_from_hops(root, ((a, b) for b, a in parent.items())).hops

    def cheapest(self, root: int, price: Mapping[Hop, float]) -> tuple[Hop, ...]:
        """Return a tree with the least sum of prices, shallow among equals, in travel order."""
        parent = cheapest_tree(root, self._ranks, price)
        for _ in range(_MOST_SWEEPS):
            if not self._flattened(root, parent, price):
                break
        return tree_from_hops(root, ((a, b) for b, a in parent.items())).hops

    def height_us(self, root: int, hops: Iterable[Hop]) -> float:
        """Return the latest arrival along hops in travel order."""
        arrival = {root: 0.0}
        for a, b in hops:
            arrival[b] = arrival[a] + self._latency_us[a, b]
        return max(arrival.values())

    def _grown(self, root: int, price: Mapping[Hop, float]) -> dict[int, int]:
        """Return the parents of a tree that grew by the cheapest hop (Prim's algorithm)."""
        arrival = {root: 0.0}
        parent: dict[int, int] = {}
        offers: list[tuple[float, float, int, int]] = []
        rank = root
        while True:
            for peer in self._onward[rank]:
                if peer not in arrival:
                    end = arrival[rank] + self._latency_us[rank, peer]
                    cost = price[rank, peer] + _DELAY_WEIGHT * end
                    heapq.heappush(offers, (cost, end, rank, peer))
            while offers and offers[0][3] in arrival:
                heapq.heappop(offers)
            if not offers:
                return parent
            _, end, sender, rank = heapq.heappop(offers)
            arrival[rank], parent[rank] = end, sender

    def _swept(self, root: int, parent: dict[int, int], price: Mapping[Hop, float]) -> bool:
        """Give every rank the cheapest parent, the latest ranks first; return whether any moved."""
        moved = False
        arrival = self._arrivals(root, parent)
        for rank in sorted(parent, key=lambda rank: (-arrival[rank], rank)):
            cost = self._cost((parent[rank], rank), arrival, price)
            for sender in self._into[rank]:
                cheaper = self._cost((sender, rank), arrival, price)
                if cheaper < cost - _GAIN and not _is_below(sender, rank, parent):
                    parent[rank], cost, moved = sender, cheaper, True
                    arrival = self._arrivals(root, parent)
        return moved

    def _flattened(self, root: int, parent: dict[int, int], price: Mapping[Hop, float]) -> bool:
        """Give every rank the soonest parent of equal price; return whether any moved."""
        moved = False
        arrival = self._arrivals(root, parent)
        for rank in sorted(parent, key=lambda rank: (-arrival[rank], rank)):
            limit = price[parent[rank], rank] * (1 + _GAIN) + _GAIN
            for sender in self._into[rank]:
                end = arrival[sender] + self._latency_us[sender, rank]
                sooner = end < arrival[rank] - _GAIN and price[sender, rank] <= limit
                if sooner and not _is_below(sender, rank, parent):
                    parent[rank], moved = sender, True
                    arrival = self._arrivals(root, parent)
        return moved

    def _cost(self, hop: Hop, arrival: Mapping[int, float], price: Mapping[Hop, float]) -> float:
        return price[hop] + _DELAY_WEIGHT * (arrival[hop[0]] + self._latency_us[hop])

    def _arrivals(self, root: int, parent: Mapping[int, int]) -> dict[int, float]:
        arrival = {root: 0.0}
        for rank in parent:
            above = [rank]
            while above[-1] not in arrival:
                above.append(parent[above[-1]])
            for sender, receiver in zip(above[:0:-1], above[-2::-1], strict=True):
                arrival[receiver] = arrival[sender] + self._latency_us[sender, receiver]
        return arrival


def _is_below(rank: int, ancestor: int, parent: Mapping[int, int]) -> bool:
    """Return whether the path from the root to `rank` leads through `ancestor`."""
    while rank != ancestor and rank in parent:
        rank = parent[rank]
    return rank == ancestor
