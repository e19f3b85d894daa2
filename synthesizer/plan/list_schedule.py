"""List scheduling: the start of each hop of each chunk, given the trees.

A hop is ready when its chunk has arrived, and starts when all its resources are free. Of hops that
could start at the same time the one with the longest remaining path goes first (critical path,
MSCCLang section 4.6), or the one that has waited longest, the latter optionally with the
connections of a rank in turn. A resource is busy for the chunk's time on it; alpha occupies no
resource.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from synthesizer.solve.routes import Hop, Resources, RouteTree


class Precedence(StrEnum):
    """The rule that picks the next transfer of several."""

    LONGEST_PATH = "longest_way"
    LONGEST_WAIT = "longest_wait"
    IN_TURN = "in_turn"
    """The longest wait; of chunks that arrived together, one per connection first. Threadblocks do
    the same: each has one connection, and only one message of it reaches the port at a time."""


@dataclass(frozen=True, slots=True)
class TimedHop:
    """A transfer with its start and end."""

    tree: int
    """Index of its tree."""
    piece: int
    """Index of the piece in the tree's chunk."""
    hop: Hop
    start_us: float
    end_us: float
    """Time when the piece has arrived."""


@dataclass(frozen=True)
class Timetable:
    """All transfers by start, and the time when the last one has arrived."""

    hops: tuple[TimedHop, ...]
    end_us: float


def list_schedule(
    trees: Sequence[RouteTree],
    pieces: int,
    costs: Resources,
    precedence: Precedence = Precedence.LONGEST_PATH,
) -> Timetable:
    """Return a timetable of every hop of every tree for each of `pieces` equal pieces.

    `costs` are for the size of one piece.
    """
    run = _Run(costs, trees, precedence)
    for t, tree in enumerate(trees):
        for piece in range(pieces):
            run.offer(t, piece, tree.source, 0.0)
    while run.times:
        run.advance()
    return Timetable(tuple(run.done), max((timed.end_us for timed in run.done), default=0.0))


_Waiting = tuple[float, int, float, int, int, int, Hop]
"""A ready transfer: ready time and queue position on its connection (if these count), negated
remaining path, piece, distance of the receiver's rank, tree, hop.

Among equals every rank serves its next neighbour first, so that ranks send to different peers."""

_EQUAL = 9
"""Decimals to which paths are compared, so that the order of equal terms makes no difference."""


class _Run:
    def __init__(
        self, costs: Resources, trees: Sequence[RouteTree], precedence: Precedence
    ) -> None:
        self.times: list[float] = []
        """Heap of the times when transfers become ready or resources free."""
        self.done: list[TimedHop] = []
        self._costs = costs
        self._remaining = [remaining_us(tree, costs) for tree in trees]
        self._onward = [onward_hops(tree) for tree in trees]
        self._wait_counts = precedence is not Precedence.LONGEST_PATH
        self._turns_count = precedence is Precedence.IN_TURN
        self._queued: Counter[Hop] = Counter()
        """Number of ready transfers of each connection."""
        self._ready: dict[float, list[_Waiting]] = {}
        self._freed: dict[float, list[int]] = {}
        self._free = [0.0] * len(costs.names)
        self._parked: list[list[_Waiting]] = [[] for _ in costs.names]
        self._ranks = 1 + max(rank for hop in costs.of_edge for rank in hop)

    def offer(self, t: int, piece: int, rank: int, now: float) -> None:
        """Mark the next hops of a piece that has arrived as ready."""
        for hop in self._onward[t].get(rank, ()):
            if now not in self._ready:
                self._ready[now] = []
                heapq.heappush(self.times, now)
            distance = (hop[1] - hop[0]) % self._ranks
            since = now if self._wait_counts else 0.0
            turn = self._queued[hop] if self._turns_count else 0
            self._queued[hop] += 1
            remaining_us = self._remaining[t][hop]
            self._ready[now].append((since, turn, -remaining_us, piece, distance, t, hop))

    def advance(self) -> None:
        """Start the transfers that can start at the next point in time, the most urgent first.

        At a resource only the first parked transfer is tried, and the next if it cannot start.
        """
        now = heapq.heappop(self.times)
        candidates = [(waiting, -1) for waiting in self._ready.pop(now, ())]
        candidates += [
            (heapq.heappop(self._parked[resource]), resource)
            for resource in self._freed.pop(now, ())
            if self._free[resource] <= now and self._parked[resource]
        ]
        heapq.heapify(candidates)
        while candidates:
            waiting, woken_by = heapq.heappop(candidates)
            self._try(waiting, now)
            if woken_by >= 0 and self._free[woken_by] <= now and self._parked[woken_by]:
                heapq.heappush(candidates, (heapq.heappop(self._parked[woken_by]), woken_by))

    def _try(self, waiting: _Waiting, now: float) -> None:
        """Start a transfer, or park it at the resource that is busy longest."""
        _, _, _, piece, _, t, hop = waiting
        used, free_us = self._costs.of_edge[hop], self._free
        last = used[0]
        for resource in used:
            if free_us[resource] > free_us[last]:
                last = resource
        if free_us[last] > now:
            heapq.heappush(self._parked[last], waiting)
            return
        for resource in used:
            free = free_us[resource] = now + self._costs.busy_us[resource]
            if free not in self._freed:
                self._freed[free] = []
                heapq.heappush(self.times, free)
            self._freed[free].append(resource)
        self._queued[hop] -= 1
        end = now + self._costs.latency_us[hop]
        self.done.append(TimedHop(t, piece, hop, now, end))
        self.offer(t, piece, hop[1], end)


def onward_hops(tree: RouteTree) -> dict[int, list[Hop]]:
    """Return the hops from each rank."""
    onward: dict[int, list[Hop]] = {}
    for hop in tree.hops:
        onward.setdefault(hop[0], []).append(hop)
    return onward


def remaining_us(tree: RouteTree, costs: Resources) -> dict[Hop, float]:
    """Return the longest time from each hop's start until the chunk is everywhere below it."""
    below: dict[int, float] = {}
    remaining: dict[Hop, float] = {}
    for a, b in reversed(tree.hops):
        remaining[a, b] = round(costs.latency_us[a, b] + below.get(b, 0.0), _EQUAL)
        below[a] = max(below.get(a, 0.0), remaining[a, b])
    return remaining
