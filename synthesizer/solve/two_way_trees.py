"""Two-way trees: the trees along which a chunk is summed up to a root and spread from there.

A tree grows where the price of its hops and the time until its last arrival increase least, then
single ranks are re-parented while that lowers either without raising their sum.

The cheapest tree is Edmonds': every rank takes its cheapest incoming hop; ranks that thereby form a
cycle are contracted, and the hops into the cycle pay the difference to the hop that they replace.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from synthesizer.solve.routes import Hop, tree_from_hops

_Offer = tuple[float, int, int]
"""Price, sender and receiver of a hop."""


def cheapest_tree(root: int, ranks: int, price: Mapping[Hop, float]) -> dict[int, int]:
    """Return the parent of every rank but the root; the root must reach every rank."""
    contraction = _Contraction(root, ranks, price)
    for rank in range(ranks):
        contraction.enter_from(rank)
    return contraction.parents()


class _Contraction:
    """Ranks and contracted cycles, both called groups, with the hops into them."""

    def __init__(self, root: int, ranks: int, price: Mapping[Hop, float]) -> None:
        self._root, self._ranks = root, ranks
        self._offers: list[list[_Offer]] = [[] for _ in range(ranks)]
        """Heap of the hops into each group; inner hops are dropped when they come up."""
        for (a, b), hop_price in price.items():
            if b != root:
                self._offers[b].append((hop_price, a, b))
        for offers in self._offers:
            heapq.heapify(offers)
        self._chosen: list[_Offer] = [(0.0, -1, -1)] * ranks
        """Hop by which each group is entered; its price is less what it saves inside."""
        self._within = list(range(ranks))
        """A group that holds each group, at last the outermost one."""
        self._parent_group = [-1] * ranks
        """Group of the cycle in which each group was contracted."""
        self._members: list[list[int]] = [[] for _ in range(ranks)]
        self._done = [rank == root for rank in range(ranks)]

    def enter_from(self, rank: int) -> None:
        """Choose hops back from a rank until they come from a group that has its hop."""
        group = self._group(rank)
        path: list[int] = []
        while not self._done[group]:
            if group in path:
                first = path.index(group)
                group, path = self._contracted(path[first:]), path[:first]
            path.append(group)
            offers = self._offers[group]
            while self._group(offers[0][1]) == group:
                heapq.heappop(offers)
            self._chosen[group] = heapq.heappop(offers)
            group = self._group(self._chosen[group][1])
        for group in path:
            self._done[group] = True

    def parents(self) -> dict[int, int]:
        """Return the parent of every rank but the root, after all groups have their hop."""
        parent: dict[int, int] = {}
        tops = [group for group, within in enumerate(self._within) if within == group]
        entered = [(group, self._chosen[group]) for group in tops if group != self._root]
        while entered:
            group, hop = entered.pop()
            _, sender, receiver = hop
            if group < self._ranks:
                parent[group] = sender
                continue
            inner = receiver
            while self._parent_group[inner] != group:
                inner = self._parent_group[inner]
            entered += [
                (member, hop if member == inner else self._chosen[member])
                for member in self._members[group]
            ]
        return parent

    def _group(self, rank: int) -> int:
        """Return the outermost group that holds a rank."""
        while self._within[rank] != rank:
            self._within[rank] = self._within[self._within[rank]]
            rank = self._within[rank]
        return rank

    def _contracted(self, cycle: list[int]) -> int:
        new = len(self._offers)
        largest = max(cycle, key=lambda group: len(self._offers[group]))
        offers, paid = self._offers[largest], self._chosen[largest][0]
        for group in cycle:
            if group != largest:
                more = paid - self._chosen[group][0]
                for hop_price, a, b in self._offers[group]:
                    heapq.heappush(offers, (hop_price + more, a, b))
        self._offers.append(offers)
        self._chosen.append((0.0, -1, -1))
        self._within.append(new)
        self._parent_group.append(-1)
        self._members.append(list(cycle))
        self._done.append(False)
        for group in cycle:
            self._within[group] = self._parent_group[group] = new
        return new


_DELAY_WEIGHT = 0.3
"""Weight of a rank's arrival beside the price of the hop into it."""

_DELAY_WEIGHTS = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Weights with which trees grow before they are lowered."""

_MEAN_WEIGHT = 1e-3
"""Weight of the mean arrival beside the latest, which prefers soon ones among equals."""

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

    Trees towards a root take reversed hops.
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

    def low(self, root: int, price: Mapping[Hop, float]) -> tuple[Hop, ...]:
        """Return a tree with a low sum of prices and latest arrival together, in travel order."""
        found = []
        for weight in _DELAY_WEIGHTS:
            parent = self._grown(root, price, weight)
            for _ in range(_MOST_SWEEPS):
                if not self._lowered(root, parent, price):
                    break
            hops = tree_from_hops(root, ((a, b) for b, a in parent.items())).hops
            cost = sum(price[hop] for hop in hops) + self.height_us(root, hops)
            found.append((cost, hops))
        return min(found)[1]

    def height_us(self, root: int, hops: Iterable[Hop]) -> float:
        """Return the latest arrival along hops in travel order."""
        arrival = {root: 0.0}
        for a, b in hops:
            arrival[b] = arrival[a] + self._latency_us[a, b]
        return max(arrival.values())

    def _grown(
        self, root: int, price: Mapping[Hop, float], delay_weight: float = _DELAY_WEIGHT
    ) -> dict[int, int]:
        """Return the parents of a tree that grew by the cheapest hop (Prim's algorithm)."""
        arrival = {root: 0.0}
        parent: dict[int, int] = {}
        offers: list[tuple[float, float, int, int]] = []
        rank = root
        while True:
            for peer in self._onward[rank]:
                if peer not in arrival:
                    end = arrival[rank] + self._latency_us[rank, peer]
                    cost = price[rank, peer] + delay_weight * end
                    heapq.heappush(offers, (cost, end, rank, peer))
            while offers and offers[0][3] in arrival:
                heapq.heappop(offers)
            if not offers:
                return parent
            _, end, sender, rank = heapq.heappop(offers)
            arrival[rank], parent[rank] = end, sender

    def _lowered(self, root: int, parent: dict[int, int], price: Mapping[Hop, float]) -> bool:
        """Move ranks with all below them where that saves the most; return whether any moved."""
        moved = False
        arrival = self._arrivals(root, parent)
        for rank in sorted(parent, key=lambda rank: (-arrival[rank], rank)):
            below = _with_all_below(rank, parent)
            inside = max(arrival[each] for each in below)
            outside = max(end for each, end in arrival.items() if each not in below)
            share = _MEAN_WEIGHT * len(below) / len(arrival)
            costs = {}
            for sender in self._into[rank]:
                if sender not in below:
                    end = arrival[sender] + self._latency_us[sender, rank]
                    latest = max(outside, inside + end - arrival[rank])
                    costs[sender] = price[sender, rank] + latest + share * end
            _, best = min((cost, sender) for sender, cost in costs.items())
            if costs[best] < costs[parent[rank]] - _GAIN:
                parent[rank], moved = best, True
                arrival = self._arrivals(root, parent)
        return moved

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


def _with_all_below(rank: int, parent: Mapping[int, int]) -> set[int]:
    """Return a rank and all ranks whose path from the root leads through it."""
    onward: dict[int, list[int]] = defaultdict(list)
    for child, above in parent.items():
        onward[above].append(child)
    found = [rank]
    for each in found:
        found += onward.get(each, [])
    return set(found)


def _is_below(rank: int, ancestor: int, parent: Mapping[int, int]) -> bool:
    """Return whether the path from the root to `rank` leads through `ancestor`."""
    while rank != ancestor and rank in parent:
        rank = parent[rank]
    return rank == ancestor
