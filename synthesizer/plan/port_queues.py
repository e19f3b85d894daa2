"""Timetable of transfers that queue at ports, as messages do when a schedule runs.

List scheduling gives a transfer precedence over those of other connections at a port; a schedule
cannot, since it fixes only the order within each connection. Here ports serve transfers in the
order of their arrival, and each connection sends the ready piece with the longest path left. So the
order within each connection fits the times at which pieces arrive, and a rehearsal confirms it.

Reversed trees carry sums: a rank sends one when the branches of its tree have arrived.

Two-way trees queue all sums and results together: the root starts to spread a sum when it is whole,
and both share the connection between two ranks.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from synthesizer.plan.list_schedule import TimedHop, Timetable, onward_hops, remaining_us
from synthesizer.solve.greedy import FIFO_SLOTS
from synthesizer.solve.routes import Hop, Resources, RouteTree
from synthesizer.solve.two_way_trees import TwoWayTree


class Urgency(StrEnum):
    """The rule that picks the next of a connection's ready transfers."""

    LONGEST_PATH = "longest_way"
    """Sums go before results: good where either alone loads all ports."""
    CHUNK_BY_CHUNK = "chunk_by_chunk"
    """Chunks follow each other on all their trees: good where one rank has all of them, and where
    results of the first chunks go with sums of the last."""


def queued_timetable(
    trees: Sequence[RouteTree],
    pieces: int,
    costs: Resources,
    urgency: Urgency = Urgency.LONGEST_PATH,
    *,
    backwards: bool,
) -> Timetable:
    """Return a timetable of every hop of every tree for each of `pieces` equal pieces.

    `costs` are for the size of one piece. If the trees run `backwards`, with sums, the timetable is
    that of the reversed run.
    """
    run = (_Sums if backwards else PortQueues)(trees, costs, urgency)
    for tree in range(len(trees)):
        for piece in range(pieces):
            run.begin(tree, piece)
    while run.events:
        run.advance()
    end_us = max((timed.end_us for timed in run.done), default=0.0)
    return Timetable(tuple(run.timed(timed, end_us) for timed in run.done), end_us)


class _Kind(IntEnum):
    """Stages of a transfer; of events at the same time the first kind goes first."""

    AT_PORT = 0
    SENT = 1
    """It has passed its first port: its connection can send again."""
    ARRIVED = 2


class Transfer(NamedTuple):
    """A piece on its way along a hop of a tree."""

    tree: int
    piece: int
    hop: Hop
    start_us: float


class _Event(NamedTuple):
    time_us: float
    kind: _Kind
    distance: int
    """From the sender's rank to the receiver's: every rank serves its next neighbour first."""
    number: int
    port: int
    """Position of the port on the transfer's route."""
    passed_us: float
    """Time when the transfer has passed the ports before."""
    transfer: Transfer


class PortQueues:
    """Trees that run from their sources: a rank passes on what has arrived."""

    def __init__(self, trees: Sequence[RouteTree], costs: Resources, urgency: Urgency) -> None:
        self.events: list[_Event] = []
        """A heap."""
        self.done: list[TimedHop] = []
        self.trees = trees
        self.onward = [onward_hops(tree) for tree in trees]
        self._costs = costs
        self.urgency = [self.left_us(tree, costs) for tree in trees]
        """A connection sends the ready piece with the highest value first, unless it sends chunk by
        chunk; by tree and hop."""
        self._by_chunk = urgency is Urgency.CHUNK_BY_CHUNK
        self._route = {hop: self.route(used) for hop, used in costs.of_edge.items()}
        self._ranks = 1 + max(rank for hop in costs.of_edge for rank in hop)
        self._free_us = [0.0] * len(costs.names)
        self._ready: dict[Hop, list[tuple[float, float, int, int]]] = defaultdict(list)
        """Heaps of transfers that wait for their connection: turn or negated path, since when,
        piece, tree."""
        self._sending: set[Hop] = set()
        self._in_flight: Counter[Hop] = Counter()
        self._events_so_far = 0

    def begin(self, tree: int, piece: int) -> None:
        """Offer the first transfers of a piece."""
        for hop in self.onward[tree].get(self.trees[tree].source, ()):
            self.offer(tree, piece, hop, 0.0)

    def arrive(self, transfer: Transfer, now: float) -> None:
        """Offer the transfers that an arrived piece makes possible."""
        for hop in self.onward[transfer.tree].get(transfer.hop[1], ()):
            self.offer(transfer.tree, transfer.piece, hop, now)

    def turn(self, tree: int, piece: int) -> int:
        """Return the position of a piece among all of them."""
        return piece * len(self.trees) + tree

    @staticmethod
    def left_us(tree: RouteTree, costs: Resources) -> dict[Hop, float]:
        """Return the longest time from each hop's start until its piece is needed nowhere else."""
        return remaining_us(tree, costs)

    @staticmethod
    def route(used: tuple[int, ...]) -> tuple[int, ...]:
        """Return an edge's resources in the order in which a transfer passes them."""
        return used

    @staticmethod
    def timed(timed: TimedHop, _end_us: float) -> TimedHop:
        """Return the transfer as the timetable has it."""
        return timed

    def offer(self, tree: int, piece: int, hop: Hop, now: float) -> None:
        """Mark a transfer as ready, and send it if its connection is free."""
        turn = self.turn(tree, piece) if self._by_chunk else -self.urgency[tree][hop]
        heapq.heappush(self._ready[hop], (turn, now, piece, tree))
        self._send(hop, now)

    def advance(self) -> None:
        """Process the next event."""
        event = heapq.heappop(self.events)
        hop = event.transfer.hop
        if event.kind is _Kind.SENT:
            self._sending.remove(hop)
            self._send(hop, event.time_us)
        elif event.kind is _Kind.ARRIVED:
            self._in_flight[hop] -= 1
            self.arrive(event.transfer, event.time_us)
            self._send(hop, event.time_us)
        else:
            self._pass_port(event)

    def _send(self, hop: Hop, now: float) -> None:
        """Send the ready piece with the longest path if the connection and its FIFO allow it."""
        ready = self._ready[hop]
        if not ready or hop in self._sending or self._in_flight[hop] >= FIFO_SLOTS:
            return
        _, _, piece, tree = heapq.heappop(ready)
        self._sending.add(hop)
        self._in_flight[hop] += 1
        self._push(now, _Kind.AT_PORT, Transfer(tree, piece, hop, now))

    def _pass_port(self, event: _Event) -> None:
        transfer = event.transfer
        route = self._route[transfer.hop]
        resource = route[event.port]
        start_us = max(event.time_us, self._free_us[resource])
        passed_us = self._free_us[resource] = start_us + self._costs.busy_us[resource]
        if event.port == 0:
            self._push(passed_us, _Kind.SENT, transfer)
        passed_us = max(passed_us, event.passed_us)
        if event.port + 1 < len(route):
            self._push(start_us, _Kind.AT_PORT, transfer, event.port + 1, passed_us)
            return
        busy_us = max(self._costs.busy_us[resource] for resource in route)
        end_us = passed_us + self._costs.latency_us[transfer.hop] - busy_us
        self.done.append(
            TimedHop(transfer.tree, transfer.piece, transfer.hop, transfer.start_us, end_us)
        )
        self._push(end_us, _Kind.ARRIVED, transfer)

    def _push(
        self,
        time_us: float,
        kind: _Kind,
        transfer: Transfer,
        port: int = 0,
        passed_us: float = 0.0,
    ) -> None:
        self._events_so_far += 1
        distance = self.distance(transfer.hop) % self._ranks
        number = self._events_so_far
        event = _Event(time_us, kind, distance, number, port, passed_us, transfer)
        heapq.heappush(self.events, event)

    @staticmethod
    def distance(hop: Hop) -> int:
        """Return the receiver's rank less the sender's."""
        return hop[1] - hop[0]


class _Sums(PortQueues):
    """Trees that run towards their sources: a rank passes on the sum of what has arrived."""

    def __init__(self, trees: Sequence[RouteTree], costs: Resources, urgency: Urgency) -> None:
        super().__init__(trees, costs, urgency)
        self._parent = [{b: a for a, b in tree.hops} for tree in trees]
        self._missing: Counter[tuple[int, int, int]] = Counter()
        """Number of branches that have not arrived, by tree, piece and rank."""

    def begin(self, tree: int, piece: int) -> None:
        """Offer the transfers of the ranks without branches."""
        for rank, hops in self.onward[tree].items():
            self._missing[tree, piece, rank] = len(hops)
        for a, b in self.trees[tree].hops:
            if b not in self.onward[tree]:
                self.offer(tree, piece, (a, b), 0.0)

    def arrive(self, transfer: Transfer, now: float) -> None:
        """Offer the sum if this was the last branch."""
        tree, piece, rank = transfer.tree, transfer.piece, transfer.hop[0]
        self._missing[tree, piece, rank] -= 1
        if rank in self._parent[tree] and not self._missing[tree, piece, rank]:
            self.offer(tree, piece, (self._parent[tree][rank], rank), now)

    @staticmethod
    def left_us(tree: RouteTree, costs: Resources) -> dict[Hop, float]:
        """Return the time from each hop's start until its sum is in the result."""
        arrivals = tree.arrivals_us(costs)
        return {hop: arrivals[hop[1]] for hop in tree.hops}

    @staticmethod
    def route(used: tuple[int, ...]) -> tuple[int, ...]:
        """Return an edge's resources in the order in which a reversed transfer passes them."""
        return used[::-1]

    @staticmethod
    def timed(timed: TimedHop, end_us: float) -> TimedHop:
        """Return the transfer on the reversed sketch, where time runs backwards."""
        return TimedHop(
            timed.tree, timed.piece, timed.hop, end_us - timed.end_us, end_us - timed.start_us
        )

    @staticmethod
    def distance(hop: Hop) -> int:
        """Return the receiver's rank less the sender's."""
        return hop[0] - hop[1]


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

    `costs` are for the size of a chunk.
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
        results = [RouteTree(tree.root, tree.down) for tree in trees]
        super().__init__([*sums, *results], costs, urgency)
        self._count = len(trees)
        self._missing: Counter[tuple[int, int]] = Counter(
            (number, receiver) for number, tree in enumerate(trees) for _, receiver in tree.up
        )
        """Number of branches that have not arrived, by tree and rank."""
        for number in range(self._count):
            up, spread_us = self.urgency[number], max(self.urgency[self._count + number].values())
            up.update({hop: left_us + spread_us for hop, left_us in up.items()})

    def turn(self, tree: int, piece: int) -> int:
        """Return the position of a chunk, whether its sum or its result is sent."""
        return piece * self._count + tree % self._count

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
