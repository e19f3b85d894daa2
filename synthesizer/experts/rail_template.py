"""What one rank does in a rail exchange, told relative to its place: the same for every rank.

Nodes that look alike are solved once. All nodes send along the same offsets, round the circle of
nodes, so a block is named by how far its owner's node is and how far its owner's place in the node
is, and the steps of all ranks are one template. `synthesizer.experts.rail_exchange` puts in the
ranks.

Distances are written with mixed radices, the first digit fastest. In phase j of an all_gather a
rank sends what it has, its own blocks and those of earlier phases, straight to the ranks of its
rail that digit j leads to; with radices (16, 8) every NIC has 15 + 7 connections instead of 127 and
a block needs at most two hops. Meanwhile the ranks of a node pass on what arrives from outside.
Reduce_scatter is the same backwards: the ranks of a node add up what their rails need, and the
phases run from the last to the first.

A rank sends blocks in the order in which they arrive, so that no message waits for a later one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from synthesizer.ir.algorithm import Buffer, StepRef, StepType


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of a block of this rank's rail, on its way from or to its owner."""

    distance: int
    """Nodes between its owner and here."""
    piece: int
    phase: int
    """The phase in which it arrives in an all_gather; -1 for the rank's own."""
    hop: int
    """The value of that phase's digit."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step."""

    type: StepType
    src: Buffer
    dst: Buffer
    block: int
    """What it is about: nodes from here forwards to its owner, times pieces, plus the piece."""
    dst_block: int
    """The same as the one who gets it counts, where that matters (in scratch)."""
    column: int
    """Place of the block's owner in its node minus this rank's."""
    depends: StepRef | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """The threadblock of one connection: where its other end is, relative to this rank."""

    sends: bool
    digit: int
    """Digit of the distance that it goes along; -1: the other end is in this node."""
    distance: int
    """In steps of the digit, or places in the node: forwards to a receiver, backwards to a
    sender."""


MOST_DIRECT_NODES = 16
"""So many nodes are still reached in one phase, by at most 15 connections per NIC."""

LOCAL = Lane(sends=False, digit=-1, distance=0)
"""The threadblock of steps without a connection."""


@dataclass
class Template:
    """Steps of every threadblock of a rank, appended phase by phase."""

    radices: tuple[int, ...]
    locals_: int
    pieces: int
    accumulator: Buffer = Buffer.OUTPUT
    """Where sums for other ranks grow."""
    items: list[Item] = field(default_factory=list)
    """In the order in which they arrive in an all_gather."""
    moves: dict[Lane, list[Move]] = field(default_factory=dict)
    last_read: dict[tuple[int, int], StepRef] = field(default_factory=dict)
    """The step that last read the place of a (block, column) for another rank."""
    total: dict[int, StepRef] = field(default_factory=dict)
    """The step after which a block's sum is complete."""

    def __post_init__(self) -> None:
        self.items = [Item(0, piece, -1, 0) for piece in range(self.pieces)]
        for phase, radix in enumerate(self.radices):
            self.items += [
                Item(item.distance + hop * self.weight(phase), item.piece, phase, hop)
                for item in tuple(self.items)
                for hop in range(1, radix)
            ]
        # Numbered in this order: what starts a phase early has a low number.
        reach = [(j, d) for j, radix in enumerate(self.radices) for d in range(1, radix)]
        reach += [(-1, d) for d in range(1, self.locals_)]
        lanes = [Lane(sends, *end) for sends in (True, False) for end in reach]
        lanes.append(LOCAL)
        self.moves = {lane: [] for lane in lanes}
        self._number = {lane: number for number, lane in enumerate(self.moves)}

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return prod(self.radices)

    def weight(self, phase: int) -> int:
        """Nodes that one step of a digit goes forwards."""
        return prod(self.radices[:phase])

    def gather(self, own: Buffer) -> None:
        """Appends an all_gather of the blocks that lie in buffer `own` at their owners."""
        arrived: dict[int, StepRef] = dict(self.total)
        blocks = [-item.distance % self.nodes * self.pieces + item.piece for item in self.items]
        sends: list[Move] = []
        for item, block in zip(self.items, blocks, strict=True):
            if item.phase >= 0:
                arrived[block] = self._receive(Lane(False, item.phase, item.hop), block, 0)
            elif own is not Buffer.OUTPUT:
                self._append(LOCAL, Move(StepType.COPY, own, Buffer.OUTPUT, block, block, 0))
            source = Buffer.OUTPUT if item.phase >= 0 else own
            after = arrived.get(block)
            sends.append(Move(StepType.SEND, source, Buffer.OUTPUT, block, block, 0, after))
        for lane in self.moves:
            if lane.sends:
                known = len(sends) if lane.digit < 0 else self.pieces * self.weight(lane.digit)
                self.moves[lane] += sends[:known]
            elif lane.digit < 0 and lane != LOCAL:
                for block in blocks:
                    self._receive(lane, block, -lane.distance)

    def scatter(self) -> None:
        """Appends a reduce_scatter into the owners' output."""
        order = [(item, item.distance * self.pieces + item.piece) for item in self.items[::-1]]
        for item, block in order:
            for phase in range(len(self.radices) - 1, item.phase, -1):
                for hop in range(self.radices[phase] - 1, 0, -1):
                    self._add(Lane(False, phase, hop), block)
        # The node's own contributions come last: they are sent last, and nothing may wait for them
        # in a NIC's lane.
        for distance in range(1, self.locals_):
            out, into = Lane(True, -1, distance), Lane(False, -1, distance)
            for _, block in order:
                target = self._sum_buffer(block)
                move = Move(StepType.SEND, Buffer.INPUT, target, block, block, distance)
                self.last_read[block, distance] = self._append(out, move)
                self._add(into, block)
        for item, block in order:
            if item.phase >= 0:
                nearer = block - item.hop * self.weight(item.phase) * self.pieces
                self._send_sum(Lane(True, item.phase, item.hop), block, nearer)

    def _send_sum(self, lane: Lane, block: int, nearer: int) -> None:
        after = self.total.get(block)
        source = Buffer.INPUT if after is None else self.accumulator
        move = Move(StepType.SEND, source, self._sum_buffer(nearer), block, nearer, 0, after)
        self.last_read[block, 0] = self._append(lane, move)

    def _add(self, lane: Lane, block: int) -> None:
        """Receives a contribution to a block's sum, after the contribution before it."""
        before = self.total.get(block)
        target = self._sum_buffer(block)
        source = Buffer.INPUT if before is None else target
        self.total[block] = self._append(
            lane, Move(StepType.RECV_REDUCE_COPY, source, target, block, block, 0, before)
        )

    def _sum_buffer(self, block: int) -> Buffer:
        return Buffer.OUTPUT if block < self.pieces else self.accumulator

    def _receive(self, lane: Lane, block: int, column: int) -> StepRef:
        """Receives a result where, after a scatter in place, a contribution lies."""
        before = self.last_read.get((block, column % self.locals_))
        move = Move(StepType.RECV, Buffer.OUTPUT, Buffer.OUTPUT, block, block, column, before)
        return self._append(lane, move)

    def _append(self, lane: Lane, move: Move) -> StepRef:
        self.moves[lane].append(move)
        return StepRef(self._number[lane], len(self.moves[lane]) - 1)


def chosen_radices(nodes: int) -> tuple[int, ...]:
    """One phase for few nodes; else two with the fewest connections, the larger radix first.

    Few blocks are spread best straight away: every further phase waits for the one before it. One
    phase also where the number of nodes is a prime.
    """
    smaller = max(d for d in range(1, int(nodes**0.5) + 1) if nodes % d == 0)
    if nodes <= MOST_DIRECT_NODES or smaller == 1:
        return (nodes,)
    return (nodes // smaller, smaller)
