"""The steps of a rail exchange relative to a rank: one template for every rank.

Equal nodes are solved once. All nodes send to the same offsets modulo the number of nodes, so a
block is named by the distance of its owner's node and of its owner's place in the node, and all
ranks share one template. `synthesizer.experts.rail_exchange` instantiates it for each rank.

Distances are mixed-radix numbers, the first digit fastest. In phase j of an all_gather a rank sends
its own blocks and those of earlier phases directly to the ranks of its rail that differ in digit j;
with radices (16, 8) every NIC has 15 + 7 connections instead of 127 and a block needs at most two
hops. Meanwhile the ranks of a node forward to each other what arrives from other nodes.
Reduce_scatter is the reverse: the ranks of a node sum what their rails need, and the phases run
from the last to the first.

A rank sends blocks in the order in which they arrive, so that no message waits for a later one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from synthesizer.ir.algorithm import Buffer, StepRef, StepType


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of a block of this rank's rail, in transit from or to its owner."""

    distance: int
    """Distance of its owner's node, in nodes."""
    piece: int
    phase: int
    """Phase of an all_gather in which it arrives; -1 for the rank's own."""
    hop: int
    """Value of that phase's digit."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of the template."""

    type: StepType
    src: Buffer
    dst: Buffer
    block: int
    """The block: nodes forward to its owner, times pieces, plus the piece."""
    dst_block: int
    """The block as the receiver counts it, where the two differ (in scratch)."""
    column: int
    """Place of the block's owner in its node minus this rank's."""
    depends: StepRef | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """The threadblock of one connection, named by its peer's place relative to this rank."""

    sends: bool
    digit: int
    """Digit of the distance that the connection changes; -1: the peer is in this node."""
    distance: int
    """Distance in steps of the digit, or in places of the node: forward to a receiver, backward to
    a sender."""


MOST_DIRECT_NODES = 16
"""Most nodes that are reached in one phase, by at most 15 connections per NIC."""

LOCAL = Lane(sends=False, digit=-1, distance=0)
"""The threadblock of steps without a connection."""


@dataclass
class Template:
    """Steps of every threadblock of a rank, appended phase by phase."""

    radices: tuple[int, ...]
    locals_: int
    pieces: int
    accumulator: Buffer = Buffer.OUTPUT
    """Buffer in which sums for other ranks accumulate."""
    items: list[Item] = field(default_factory=list)
    """Items in the order in which they arrive in an all_gather."""
    moves: dict[Lane, list[Move]] = field(default_factory=dict)
    last_read: dict[tuple[int, int], StepRef] = field(default_factory=dict)
    """The step that last read the location of a (block, column) for another rank."""
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
        # Threadblocks are numbered in this order: those of early phases have low numbers.
        peers = [(j, d) for j, radix in enumerate(self.radices) for d in range(1, radix)]
        peers += [(-1, d) for d in range(1, self.locals_)]
        lanes = [Lane(sends, *peer) for sends in (True, False) for peer in peers]
        lanes.append(LOCAL)
        self.moves = {lane: [] for lane in lanes}
        self._number = {lane: number for number, lane in enumerate(self.moves)}

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return prod(self.radices)

    def weight(self, phase: int) -> int:
        """Return the nodes that one step of a digit moves forward."""
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
        # The node's own contributions come last, so that no step of a NIC's threadblock waits for
        # them.
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
        """Append the receipt of a contribution to a block's sum, after the previous one."""
        before = self.total.get(block)
        target = self._sum_buffer(block)
        source = Buffer.INPUT if before is None else target
        self.total[block] = self._append(
            lane, Move(StepType.RECV_REDUCE_COPY, source, target, block, block, 0, before)
        )

    def _sum_buffer(self, block: int) -> Buffer:
        return Buffer.OUTPUT if block < self.pieces else self.accumulator

    def _receive(self, lane: Lane, block: int, column: int) -> StepRef:
        """Append the receipt of a result; it may overwrite a contribution that was sent before."""
        before = self.last_read.get((block, column % self.locals_))
        move = Move(StepType.RECV, Buffer.OUTPUT, Buffer.OUTPUT, block, block, column, before)
        return self._append(lane, move)

    def _append(self, lane: Lane, move: Move) -> StepRef:
        self.moves[lane].append(move)
        return StepRef(self._number[lane], len(self.moves[lane]) - 1)


def chosen_radices(nodes: int) -> tuple[int, ...]:
    """Return one phase for few nodes; else two with the fewest connections, larger radix first.

    Few blocks spread fastest in one phase, because each further phase waits for the one before. A
    prime number of nodes also has one phase.
    """
    smaller = max(d for d in range(1, int(nodes**0.5) + 1) if nodes % d == 0)
    if nodes <= MOST_DIRECT_NODES or smaller == 1:
        return (nodes,)
    return (nodes // smaller, smaller)
