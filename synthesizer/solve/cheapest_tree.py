"""The spanning tree with the least sum of prices whose hops lead away from a root.

Every rank takes its cheapest incoming hop; ranks that thereby form a cycle are contracted, and the
hops into the cycle pay the difference to the hop that they replace (Edmonds' algorithm).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from synthesizer.solve.resources import Hop

_Offer = tuple[float, int, int]
"""Price, sender and receiver of a hop."""


def cheapest_tree(root: int, ranks: int, price: Mapping[Hop, float]) -> dict[int, int]:
    """Return the parent of every rank but the root; the root must reach every rank.

    Args:
        root: The rank from which all hops lead away.
        ranks: Number of ranks.
        price: Price of each hop.
    """
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
        """Contract a cycle; return the new group."""
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
