"""List scheduling: when each hop of each chunk goes, given the trees.

A hop is ready when its chunk has arrived, and starts when all its resources are free; of those
that could start at the same time the one with the longest way still before it goes first (critical
path, MSCCLang section 4.6). A resource is free again after the chunk's time on it; alpha occupies
nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from synthesizer.resources import Hop, Resources
from synthesizer.routes import RouteTree


@dataclass(frozen=True, slots=True)
class TimedHop:
    """One transfer of the schedule."""

    tree: int
    """Index of its tree."""
    piece: int
    """Which piece of the tree's chunk."""
    hop: Hop
    start_us: float
    end_us: float
    """When the piece has arrived."""


@dataclass(frozen=True)
class Timetable:
    """All transfers by start, and when the last one has arrived."""

    hops: tuple[TimedHop, ...]
    end_us: float


def list_schedule(trees: Sequence[RouteTree], pieces: int, costs: Resources) -> Timetable:
    """Times every hop of every tree for each of `pieces` equal pieces.

    Args:
        trees: Where chunks go.
        pieces: Pieces that each tree's chunk is cut into; they follow each other.
        costs: Resources for the size of one piece.
    """
    remaining = [_remaining_us(tree, costs) for tree in trees]
    onward = [_onward(tree) for tree in trees]
    free = [0.0] * len(costs.names)
    queue: list[tuple[float, float, int, int, Hop, float]] = []

    def offer(t: int, piece: int, rank: int, now: float) -> None:
        for hop in onward[t].get(rank, ()):
            heapq.heappush(queue, (now, -remaining[t][hop], piece, t, hop, now))

    for t, tree in enumerate(trees):
        for piece in range(pieces):
            offer(t, piece, tree.source, 0.0)
    done: list[TimedHop] = []
    while queue:
        promised, urgency, piece, t, hop, ready = heapq.heappop(queue)
        used = costs.of_edge[hop]
        start = max(ready, *(free[resource] for resource in used))
        if start > promised:
            heapq.heappush(queue, (start, urgency, piece, t, hop, ready))
            continue
        for resource in used:
            free[resource] = start + costs.busy_us[resource]
        end = start + costs.latency_us[hop]
        done.append(TimedHop(t, piece, hop, start, end))
        offer(t, piece, hop[1], end)
    return Timetable(tuple(done), max((timed.end_us for timed in done), default=0.0))


def _onward(tree: RouteTree) -> dict[int, list[Hop]]:
    onward: dict[int, list[Hop]] = {}
    for hop in tree.hops:
        onward.setdefault(hop[0], []).append(hop)
    return onward


def _remaining_us(tree: RouteTree, costs: Resources) -> dict[Hop, float]:
    """Longest time from the start of each hop until the chunk is everywhere below it."""
    below: dict[int, float] = {}
    remaining: dict[Hop, float] = {}
    for a, b in reversed(tree.hops):
        remaining[a, b] = costs.latency_us[a, b] + below.get(b, 0.0)
        below[a] = max(below.get(a, 0.0), remaining[a, b])
    return remaining
