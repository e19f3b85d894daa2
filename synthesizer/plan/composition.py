"""Composition: programs of the collectives from timed trees.

All_gather and broadcast follow the trees; reduce_scatter and reduce run them in reverse, with a sum
wherever branches meet; all_reduce is reduce_scatter followed by all_gather, or follows two-way
trees. A tree of source s carries a chunk that s owns; the chunk's pieces are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Program
from synthesizer.plan.list_schedule import TimedHop, Timetable
from synthesizer.plan.port_queues import TimedTwoWays
from synthesizer.solve.routes import Hop, RouteTree


@dataclass(frozen=True)
class TimedTrees:
    """Trees, `per_source` of them for each source, with a timetable for their pieces."""

    trees: Sequence[RouteTree]
    per_source: int
    pieces: int
    timetable: Timetable

    @property
    def chunks(self) -> int:
        """Number of pieces of one source's block."""
        return self.per_source * self.pieces

    def place(self, timed: TimedHop) -> int:
        """Return the position of a transfer's piece in its source's block."""
        return timed.tree % self.per_source * self.pieces + timed.piece

    def forwards(self) -> list[TimedHop]:
        """Return the transfers by start."""
        return sorted(self.timetable.hops, key=lambda timed: timed.start_us)

    def backwards(self) -> list[TimedHop]:
        """Return the transfers of the reversed schedule by arrival: the last to start ends first.

        Sums into one chunk are added in this order, so none waits for a later one.
        """
        return sorted(self.timetable.hops, key=lambda timed: (-timed.start_us, -timed.end_us))


def spread_program(collective: Collective, ranks: int, plan: TimedTrees, root: int = 0) -> Program:
    """All_gather or broadcast along the trees."""
    program = Program(collective, ranks, plan.chunks, root)
    block = plan.chunks if collective.joins else 0
    for timed in plan.forwards():
        owner, place = plan.trees[timed.tree].source, plan.place(timed)
        _forward(program, timed, program.input(owner, place), owner * block + place)
    for owner in (root,) if collective.has_root else range(ranks):
        whole = program.output(owner, owner * block, plan.chunks)
        program.copy(program.input(owner, 0, plan.chunks), whole)
    return program


def collect_program(collective: Collective, ranks: int, plan: TimedTrees, root: int = 0) -> Program:
    """Reduce_scatter or reduce up the trees, which were found on the reversed sketch."""
    program = Program(collective, ranks, plan.chunks, root)
    block = plan.chunks if collective.splits else 0
    sums: dict[tuple[int, int], Chunk] = {}
    for timed in plan.backwards():
        owner, place = plan.trees[timed.tree].source, plan.place(timed)
        _add_up(program, timed.hop, sums, owner * block + place, program.output(owner, place))
    return program


def all_reduce_program(ranks: int, scatter: TimedTrees, gather: TimedTrees) -> Program:
    """All_reduce: reduce_scatter, then all_gather of the sums on a channel of its own.

    Both plans must cut a block into equally many chunks.
    """
    program = Program(Collective.ALL_REDUCE, ranks, ranks * scatter.chunks)
    sums: dict[tuple[int, int], Chunk] = {}
    for timed in scatter.backwards():
        owner = scatter.trees[timed.tree].source
        offset = owner * scatter.chunks + scatter.place(timed)
        _add_up(program, timed.hop, sums, offset, program.output(owner, offset))
    for timed in gather.forwards():
        offset = gather.trees[timed.tree].source * gather.chunks + gather.place(timed)
        a, b = timed.hop
        program.copy(program.output(a, offset), program.output(b, offset), channel=1)
    return program


def two_way_program(ranks: int, plan: TimedTwoWays) -> Program:
    """All_reduce along two-way trees, with sums and results of two ranks on one channel."""
    program = Program(Collective.ALL_REDUCE, ranks, len(plan.trees))
    sums: dict[tuple[int, int], Chunk] = {}
    for timed in plan.transfers:
        chunk, (a, b) = plan.chunk(timed), timed.hop
        if plan.carries_sum(timed):
            result = program.output(plan.trees[chunk].root, chunk)
            _add_up(program, (b, a), sums, chunk, result)
        else:
            program.copy(program.output(a, chunk), program.output(b, chunk))
    return program


def pairs_program(
    collective: Collective,
    ranks: int,
    plan: TimedTrees,
    targets: Sequence[int],
    paths_per_pair: int = 1,
    root: int = 0,
) -> Program:
    """Parts along paths, equally many per pair of ranks; `targets` are the paths' ends."""
    chunks = paths_per_pair * plan.pieces
    program = Program(collective, ranks, chunks, root, in_place=collective.has_place)
    of_target = chunks if collective.splits else 0
    of_source = chunks if collective.joins else 0
    held: dict[tuple[int, int], Chunk] = {}
    for timed in plan.forwards():
        source, target = plan.trees[timed.tree].source, targets[timed.tree]
        key = timed.tree, timed.piece
        place = timed.tree % paths_per_pair * plan.pieces + timed.piece
        src = held.get(key, program.input(source, target * of_target + place))
        dst = (
            program.output(target, source * of_source + place)
            if timed.hop[1] == target
            else program.scratch(timed.hop[1])
        )
        held[key] = program.copy(src, dst)
    for rank in (root,) if collective.has_root else range(ranks):
        own = program.input(rank, rank * of_target, chunks)
        program.copy(own, program.output(rank, rank * of_source, chunks))
    return program


def _forward(program: Program, timed: TimedHop, own: Chunk, offset: int) -> None:
    a, b = timed.hop
    source = own if a == own.rank else program.output(a, offset)
    program.copy(source, program.output(b, offset))


def _add_up(
    program: Program,
    hop: Hop,
    sums: dict[tuple[int, int], Chunk],
    offset: int,
    result: Chunk,
) -> None:
    """Add b's partial sum to a's for the tree's hop a -> b."""
    a, b = hop
    partial = sums.get((b, offset), program.input(b, offset))
    known = sums.get((a, offset))
    if known is None:
        # At the place of the sum, because lowering spreads chunks over channels by their place.
        target = result if a == result.rank else Chunk(a, Buffer.SCRATCH, offset)
        sums[a, offset] = program.reduce(partial, target, program.input(a, offset))
    else:
        program.reduce(partial, known)
