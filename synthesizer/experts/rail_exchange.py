"""Rail exchanges: all_gather, reduce_scatter and all_reduce for many equal nodes.

Every NIC carries each block of its rail as often as the bound requires and no more, and the links
inside the nodes are busy at the same time; `synthesizer.experts.rail_template` describes the
pattern. The steps are computed once, relative to a rank, and instantiated for all ranks, so 1,024
ranks take seconds. Like every schedule, the result must pass the verifier before use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from synthesizer.experts.rail_template import Lane, Move, Template, chosen_radices
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    Threadblock,
)
from synthesizer.ir.collectives import Collective, input_chunks, output_chunks
from tuccl.errors import InfeasibleError

Grid = tuple[tuple[int, ...], ...]
"""Ranks by node, then by place in the node."""

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
    protocol: Protocol = Protocol.SIMPLE,
) -> Algorithm:
    """All_gather, reduce_scatter or all_reduce along rails and inside nodes at once.

    Args:
        collective: One of the three.
        grid: Two or more nodes, equally large.
        pieces: Pieces of a rank's block; 0: `chosen_pieces`.
        radices: Radices of the node numbers, one phase each; None: `chosen_radices`.
        protocol: The schedule's protocol.

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
        protocol=protocol,
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
    """Return the template's steps for every rank."""
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
    """Return send peer and receive peer of a rank's threadblock."""
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
