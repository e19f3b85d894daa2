"""Timetable of two-way trees: sums and results of all chunks together, queueing at the ports.

A rank passes on a partial sum when the branches of its tree have arrived, the root starts to spread
the sum when it is whole, and both share the connection between two ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from synthesizer.plan.list_schedule import TimedHop
from synthesizer.plan.port_queues import PortQueues, Transfer
from synthesizer.solve.resources import Hop, Resources
from synthesizer.solve.routes import RouteTree
from synthesizer.solve.two_way_trees import TwoWayTree


class Urgency(StrEnum):
    """The rule that picks the next of a connection's ready transfers."""

    LONGEST_PATH = "longest_way"
    """Sums go before results: good where either alone loads all ports."""
    CHUNK_BY_CHUNK = "chunk_by_chunk"
    """Results of the first chunks go with sums of the last."""


@dataclass(frozen=True)
class TimedTwoWays:
    """Two-way trees, one per chunk, with the starts and ends of their hops."""

    trees: Sequence[TwoWayTree]
    transfers: tuple[TimedHop, ...]
    """By start; tree numbers from `len(trees)` on are those of results."""

    def chunk(self, timed: TimedHop) -> int:
        """Return the chunk of a transfer."""
        return timed.tree % len(self.trees)

    def carries_sum(self, timed: TimedHop) -> bool:
        """Return whether a transfer carries a partial sum, not a result."""
        return timed.tree < len(self.trees)


def queued_two_ways(
    trees: Sequence[TwoWayTree], costs: Resources, urgency: Urgency
) -> TimedTwoWays:
    """Return a timetable of every hop.

    Args:
        trees: One tree per chunk.
        costs: Resources for the size of a chunk.
        urgency: The rule that picks the next transfer.
    """
    run = _TwoWayQueues(trees, costs, urgency)
    for number in range(len(trees)):
        run.begin(number, 0)
    while run.events:
        run.advance()
    return TimedTwoWays(trees, tuple(sorted(run.done, key=lambda timed: timed.start_us)))


class _TwoWayQueues(PortQueues):
    """Trees of sums, followed by the trees of results with the same roots."""

    def __init__(self, trees: Sequence[TwoWayTree], costs: Resources, urgency: Urgency) -> None:
        sums = [RouteTree(tree.root, tree.up) for tree in trees]
        super().__init__([*sums, *(RouteTree(tree.root, tree.down) for tree in trees)], costs)
        self._count = len(trees)
        self._missing: Counter[tuple[int, int]] = Counter(
            (number, receiver) for number, tree in enumerate(trees) for _, receiver in tree.up
        )
        """Number of branches that have not arrived, by tree and rank."""
        for number in range(self._count):
            up, down = self.urgency[number], self.urgency[self._count + number]
            if urgency is Urgency.CHUNK_BY_CHUNK:
                up.update(dict.fromkeys(up, -number))
                down.update(dict.fromkeys(down, -number))
            else:
                spread_us = max(down.values())
                up.update({hop: left_us + spread_us for hop, left_us in up.items()})

    def begin(self, tree: int, piece: int) -> None:
        """Offer the transfers of the ranks without branches."""
        for hop in self.trees[tree].hops:
            if not self._missing[tree, hop[0]]:
                self.offer(tree, piece, hop, 0.0)

    def arrive(self, transfer: Transfer, now: float) -> None:
        """Offer the sum if this was its last branch, or pass on the result."""
        tree, rank = transfer.tree, transfer.hop[1]
        if tree < self._count:
            self._missing[tree, rank] -= 1
            if self._missing[tree, rank]:
                return
            if rank == self.trees[tree].source:
                tree += self._count
        hops: list[Hop] = self.onward[tree].get(rank, [])
        for hop in hops:
            self.offer(tree, transfer.piece, hop, now)
