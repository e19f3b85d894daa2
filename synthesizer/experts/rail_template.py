"""What one rank does in a rail exchange, told relative to its place: the same for every rank.

Nodes that look alike are solved once. All nodes send along the same offsets, so a block is named by
how far its owner's node is (`Item`) and how far its owner's place in the node is (`Move.column`),
and the steps of all ranks are one template. `synthesizer.experts.rail_exchange` puts in the ranks.

Nodes are numbered with mixed radices, the first digit fastest. In phase j of an all_gather a rank
sends what it has, its own blocks and those of earlier phases, straight to the ranks of its rail
that differ in digit j only; with radices (8, 16) every NIC has 7 + 15 connections instead of 127
and a block needs at most two hops. Meanwhile the ranks of a node pass on what arrives from outside.
Reduce_scatter is the same backwards: first the ranks of a node add up what their rails need, then
the phases run from the last to the first.

A rank sends blocks in the order in which they arrive, so that no message waits for a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from synthesizer.algorithm import Buffer, StepRef, StepType


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of a block of this rank's rail."""

    away: tuple[int, ...]
    """Digits of (this node - the owner's node)."""
    piece: int

    @property
    def phase(self) -> int:
        """The phase in which it arrives in an all_gather; -1 for the rank's own."""
        return max((digit for digit, value in enumerate(self.away) if value), default=-1)


@dataclass(frozen=True, slots=True)
class Move:
    """One step."""

    type: StepType
    src: Buffer
    dst: Buffer
    item: int
    """What it is about, as this rank counts."""
    dst_item: int
    """The same as the one who gets it counts."""
    column: int
    """Place of the block's owner in its node minus this rank's."""
    depends: StepRef | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """The threadblock of one connection: where its other end is, relative to this rank."""

    sends: bool
    digit: int
    """Digit of the node that differs; -1: the other end is in this node."""
    distance: int
    """Forwards, for receivers backwards: the one who sends to `r + d` is received from `r - d`."""


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
    """The step that last read an item's place (item, column) for another rank."""
    total: dict[int, StepRef] = field(default_factory=dict)
    """The step after which an item's sum is complete."""

    def __post_init__(self) -> None:
        zero = (0,) * len(self.radices)
        self.items = [Item(zero, piece) for piece in range(self.pieces)]
        for digit, radix in enumerate(self.radices):
            self.items += [
                Item(_with_digit(item.away, digit, distance), item.piece)
                for item in tuple(self.items)
                for distance in range(1, radix)
            ]
        # Numbered in this order: what starts a phase early has a low number.
        reach = [(j, d) for j, radix in enumerate(self.radices) for d in range(1, radix)]
        reach += [(-1, d) for d in range(1, self.locals_)]
        lanes = [Lane(sends, *end) for sends in (True, False) for end in reach]
        lanes.append(LOCAL)
        self.moves = {lane: [] for lane in lanes}
        self._number = {lane: number for number, lane in enumerate(self.moves)}

    def gather(self, own: Buffer) -> None:
        """Appends an all_gather of the blocks that lie in buffer `own` at their owners."""
        arrived: dict[int, StepRef] = dict(self.total)
        for number, item in enumerate(self.items):
            if item.phase >= 0:
                lane = Lane(False, item.phase, item.away[item.phase])
                arrived[number] = self._receive(lane, number, 0)
            elif own is not Buffer.OUTPUT:
                copy = Move(StepType.COPY, own, Buffer.OUTPUT, number, number, 0)
                self._append(LOCAL, copy)
        sends = [
            Move(
                StepType.SEND,
                Buffer.OUTPUT if item.phase >= 0 else own,
                Buffer.OUTPUT,
                number,
                number,
                0,
                arrived.get(number),
            )
            for number, item in enumerate(self.items)
        ]
        for lane in self.moves:
            if lane.sends:
                known = len(sends) if lane.digit < 0 else self._known(lane.digit)
                self.moves[lane] += sends[:known]
            elif lane.digit < 0 and lane != LOCAL:
                for number in range(len(self.items)):
                    self._receive(lane, number, -lane.distance)

    def scatter(self) -> None:
        """Appends a reduce_scatter into the owners' output."""
        order = range(len(self.items) - 1, -1, -1)
        for number in order:
            for digit in range(len(self.radices) - 1, self.items[number].phase, -1):
                radix = self.radices[digit]
                for distance in range(radix - 1, 0, -1):
                    # What is `distance` farther from its owner comes back over that distance.
                    self._add(Lane(False, digit, radix - distance), number)
        # The node's own contributions come last: they are sent last, and nothing may wait for them
        # in a NIC's lane.
        for distance in range(1, self.locals_):
            out, into = Lane(True, -1, distance), Lane(False, -1, distance)
            for number in order:
                target = self._sum_buffer(number)
                move = Move(StepType.SEND, Buffer.INPUT, target, number, number, distance)
                self.last_read[number, distance] = self._append(out, move)
                self._add(into, number)
        index = {item: number for number, item in enumerate(self.items)}
        for number in order:
            item, phase = self.items[number], self.items[number].phase
            if phase >= 0:
                lane = Lane(True, phase, self.radices[phase] - item.away[phase])
                nearer = index[Item(_with_digit(item.away, phase, 0), item.piece)]
                self._send_sum(lane, number, nearer)

    def _send_sum(self, lane: Lane, number: int, nearer: int) -> None:
        after = self.total.get(number)
        source = Buffer.INPUT if after is None else self.accumulator
        move = Move(StepType.SEND, source, self._sum_buffer(nearer), number, nearer, 0, after)
        self.last_read[number, 0] = self._append(lane, move)

    def _add(self, lane: Lane, number: int) -> None:
        """Receives a contribution to an item's sum, after the contribution before it."""
        before = self.total.get(number)
        target = self._sum_buffer(number)
        source = Buffer.INPUT if before is None else target
        self.total[number] = self._append(
            lane, Move(StepType.RECV_REDUCE_COPY, source, target, number, number, 0, before)
        )

    def _sum_buffer(self, number: int) -> Buffer:
        return Buffer.OUTPUT if self.items[number].phase < 0 else self.accumulator

    def _receive(self, lane: Lane, number: int, column: int) -> StepRef:
        """Receives a result where, after a scatter in place, its contribution may lie."""
        before = self.last_read.get((number, column % self.locals_))
        move = Move(StepType.RECV, Buffer.OUTPUT, Buffer.OUTPUT, number, number, column, before)
        return self._append(lane, move)

    def _append(self, lane: Lane, move: Move) -> StepRef:
        self.moves[lane].append(move)
        return StepRef(self._number[lane], len(self.moves[lane]) - 1)

    def _known(self, phase: int) -> int:
        """Items that a rank has when an all_gather's phase begins."""
        return self.pieces * prod(self.radices[:phase])


def _with_digit(digits: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*digits[:place], value, *digits[place + 1 :])


def balanced_radices(nodes: int) -> tuple[int, ...]:
    """Two radices with the fewest connections, the smaller first; one where there is no divisor."""
    smaller = max(d for d in range(1, int(nodes**0.5) + 1) if nodes % d == 0)
    return (nodes,) if smaller == 1 else (smaller, nodes // smaller)


def shifted(node: int, away: Iterable[int], radices: Sequence[int], sign: int) -> int:
    """The node whose digits differ from those of `node` by `away`, forwards or backwards."""
    found, weight = 0, 1
    for radix, distance in zip(radices, away, strict=True):
        found += (node // weight + sign * distance) % radix * weight
        weight *= radix
    return found
