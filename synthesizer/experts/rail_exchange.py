"""Rail exchanges: all_gather, reduce_scatter and all_reduce for many equal nodes.

Every NIC carries each block of its rail as often as the bound requires and no more, and the links
inside the nodes are busy at the same time. The steps are computed once, relative to a rank, and
instantiated for all ranks, so 1,024 ranks take seconds: all nodes send to the same offsets modulo
the number of nodes, and a block is named by the distance of its owner's node and of its owner's
place in the node.

Distances are mixed-radix numbers, the first digit fastest. In phase j of an all_gather a rank sends
its own blocks and those of earlier phases directly to the ranks of its rail that differ in digit j;
with radices (16, 8) every NIC has 15 + 7 connections instead of 127 and a block needs at most two
hops. Meanwhile the ranks of a node forward to each other what arrives from other nodes.
Reduce_scatter is the reverse: the ranks of a node sum what their rails need, and the phases run
from the last to the first. A rank sends blocks in the order in which they arrive, so that no
message waits for a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from lookup_tables.collective import Collective
from synthesizer.experts.hierarchical import Grid
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.ir.contents import input_chunks, output_chunks
from tuccl.errors import InfeasibleError


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


COLLECTIVES = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE)
"""Operations for which rail exchanges exist."""

MESSAGES_PER_NIC = 128
"""Messages per direction into which a NIC's data is cut: the first and the last, which do not
overlap with the links inside the node, then take about a hundredth of the time."""


def rail_exchange(
    collective: Collective,
    grid: Grid,
    pieces: int = 0,
    radices: Sequence[int] | None = None,
) -> Algorithm:
    """All_gather, reduce_scatter or all_reduce along rails and inside nodes at once.

    Args:
        collective: One of the three.
        grid: Two or more nodes, equally large.
        pieces: Pieces of a rank's block; 0: `chosen_pieces`.
        radices: Radices of the node numbers, one phase each; None: `chosen_radices`.

    Raises:
        InfeasibleError: Another collective, or a grid, pieces or radices that don't fit.
    """
    chosen = chosen_radices(len(grid)) if radices is None else tuple(radices)
    pieces = pieces or chosen_pieces(len(grid))
    _check(collective, grid, pieces, chosen)
    template = Template(chosen, len(grid[0]), pieces)
    if collective is Collective.REDUCE_SCATTER:
        template.accumulator = Buffer.SCRATCH
    if collective is not Collective.ALL_GATHER:
        template.scatter()
    if collective is not Collective.REDUCE_SCATTER:
        template.gather(Buffer.INPUT if collective is Collective.ALL_GATHER else Buffer.OUTPUT)
    return Algorithm(
        name=f"{collective}_rails_{'x'.join(map(str, chosen))}_{pieces}c",
        collective=collective,
        protocol=Protocol.SIMPLE,
        channels=1,
        chunks_per_loop=len(grid) * len(grid[0]) * pieces,
        in_place=True,
        out_of_place=True,
        programs=_programs(collective, grid, template),
    )


def chosen_pieces(nodes: int) -> int:
    """Return the pieces per block that make a NIC send about `MESSAGES_PER_NIC` messages."""
    return max(1, MESSAGES_PER_NIC // nodes)


def _check(collective: Collective, grid: Grid, pieces: int, radices: tuple[int, ...]) -> None:
    if collective not in COLLECTIVES:
        raise InfeasibleError(f"{collective}: rail exchanges are for {', '.join(COLLECTIVES)}")
    if len(grid) < 2 or len({len(row) for row in grid}) != 1:
        raise InfeasibleError(
            f"{collective}: a rail exchange needs two or more nodes with equally many GPUs"
        )
    if sorted(rank for row in grid for rank in row) != list(range(len(grid) * len(grid[0]))):
        raise InfeasibleError(f"{collective}: the grid must hold every rank once")
    if pieces < 1 or prod(radices) != len(grid) or any(radix < 2 for radix in radices):
        raise InfeasibleError(
            f"{collective}: {pieces} pieces and radices {radices} for {len(grid)} nodes; the "
            "product of the radices must be the number of nodes, pieces 1 or more"
        )


def _programs(collective: Collective, grid: Grid, template: Template) -> tuple[GpuProgram, ...]:
    moves: dict[Move, int] = {}
    lanes = [
        (lane, tuple(moves.setdefault(move, len(moves)) for move in lane_moves))
        for lane, lane_moves in template.moves.items()
        if lane_moves
    ]
    place = _Places(collective, grid, template)
    programs = {}
    scratch = len(template.items) - template.pieces
    if collective is not Collective.REDUCE_SCATTER:
        scratch = 0
    for node, row in enumerate(grid):
        for local, rank in enumerate(row):
            steps = place.steps(tuple(moves), node, local)
            sizes = (collective, place.ranks, place.ranks * template.pieces)
            programs[rank] = GpuProgram(
                rank,
                input_chunks(*sizes),
                output_chunks(*sizes),
                scratch,
                tuple(
                    Threadblock(
                        number,
                        *_ends(grid, template, lane, node, local),
                        0,
                        tuple([steps[move] for move in chosen]),
                    )
                    for number, (lane, chosen) in enumerate(lanes)
                ),
            )
    return tuple(programs[rank] for rank in range(place.ranks))


def _ends(grid: Grid, template: Template, lane: Lane, node: int, local: int) -> tuple[int, int]:
    if not lane.distance:
        return -1, -1
    away = lane.distance if lane.sends else -lane.distance
    if lane.digit < 0:
        peer = grid[node][(local + away) % len(grid[0])]
    else:
        peer = grid[(node + away * template.weight(lane.digit)) % len(grid)][local]
    return (peer, -1) if lane.sends else (-1, peer)


class _Places:
    """Locations of the template's items in the buffers of each rank."""

    def __init__(self, collective: Collective, grid: Grid, template: Template) -> None:
        self.collective = collective
        self.grid = grid
        self.template = template
        self.ranks = len(grid) * len(grid[0])
        chunks = range(self.ranks * template.pieces)
        self._refs = {buffer: [ChunkRef(buffer, chunk) for chunk in chunks] for buffer in Buffer}

    def steps(self, moves: Sequence[Move], node: int, local: int) -> list[Step]:
        """Return the template's steps for the rank at (node, local)."""
        where = self._where(node, local)
        return [
            Step(
                move.type,
                where[move.src][move.column][move.block],
                where[move.dst][move.column][move.dst_block],
                1,
                move.depends,
            )
            for move in moves
        ]

    def _where(self, node: int, local: int) -> dict[Buffer, list[list[ChunkRef]]]:
        """Return chunks by buffer, column and block; negative columns count from the end."""
        nodes, locals_, pieces = len(self.grid), len(self.grid[0]), self.template.pieces
        owners = [self.grid[(node + ahead) % nodes] for ahead in range(nodes)]
        blocks = [
            [
                owner[(local + column) % locals_] * pieces + piece
                for owner in owners
                for piece in range(pieces)
            ]
            for column in range(locals_)
        ]
        own = [[block % pieces for block in range(nodes * pieces)]] * locals_
        sums = [[max(0, block - pieces) for block in range(nodes * pieces)]] * locals_
        places = {
            Buffer.INPUT: own if self.collective is Collective.ALL_GATHER else blocks,
            Buffer.OUTPUT: own if self.collective is Collective.REDUCE_SCATTER else blocks,
            Buffer.SCRATCH: sums,
        }
        return {
            buffer: [[self._refs[buffer][chunk] for chunk in column] for column in found]
            for buffer, found in places.items()
        }
