"""Two-phase hierarchical algorithms: inside the nodes at full speed, between nodes along rails.

The l-th ranks of all nodes form rail l. A chunk crosses to another node once, on its owner's rail,
so every NIC carries an equal share (MSCCLang section 6.3). Nodes must be equally large, and each
node and each rail fully connected.

For small buffers the four steps of all_reduce cost more than the data. In two steps every rank sums
its node's buffers, then these sums along its rail: each NIC carries (nodes - 1) buffers. In three
steps each rank does so for its share of the buffer and copies the result to its node: with L ranks
per node a NIC carries 1/L as much. On two nodes these are the fewest bytes that a NIC can carry.
There three steps suit large buffers too, if shares are cut into pieces that follow each other.

Two-step alltoall sends each remote rank one message (MSCCLang section 6.4): every rank copies its
chunks for rail l to the l-th rank of its own node, which sends all chunks of its node for a rank of
its rail together. `all_pairs` has the direct form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Reference, Schedule
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Program


def two_step_all_reduce(grid: Grid) -> Program:
    """All_reduce: every rank sums over its node, then sums these along its rail."""
    schedule = Schedule(Collective.ALL_REDUCE, len(grid) * len(grid[0]))
    buffers = {rank: schedule.chunk(rank, INPUT, 0) for row in grid for rank in row}
    sums = {rank: _sum(buffers, rank, row, SCRATCH, None) for row in grid for rank in row}
    for rail in zip(*grid, strict=True):
        for rank in rail:
            _sum(sums, rank, rail, OUTPUT, 0)
    return schedule.program()


def three_step_all_reduce(
    grid: Grid, pieces: int = 1, rails: Sequence[tuple[int, ...]] = ()
) -> Program:
    """All_reduce: each rank sums its share over its node, then its rail, and copies it to its node.

    The final copies have a channel of their own, so that they do not delay sums of later data. With
    some `rails` only, the ranks of these have shares.
    """
    rails = rails or tuple(zip(*grid, strict=True))
    ranks = len(grid) * len(grid[0])
    schedule = Schedule(Collective.ALL_REDUCE, ranks, chunks=len(rails) * pieces)
    for piece in range(pieces):
        shares = [(i * pieces + piece, rail) for i, rail in enumerate(rails)]
        _three_steps(schedule, grid, shares)
    return schedule.program()


def _three_steps(
    schedule: Schedule, grid: Grid, rails: Sequence[tuple[int, tuple[int, ...]]]
) -> None:
    """Sum a chunk for each rail, given with the ranks of the rail, and copy it to all ranks."""
    sums: dict[int, Reference] = {}
    for share, rail in rails:
        inputs = {rank: schedule.chunk(rank, INPUT, share) for row in grid for rank in row}
        for rank, row in zip(rail, grid, strict=True):
            sums[rank] = _sum(inputs, rank, row, SCRATCH, None)
    for share, rail in rails:
        for rank in rail:
            _sum(sums, rank, rail, OUTPUT, share)
    for share, rail in rails:
        for rank, row in zip(rail, grid, strict=True):
            for peer in _others(rank, row):
                schedule.chunk(rank, OUTPUT, share).copy(peer, OUTPUT, share, channel=1)


def _sum(
    values: dict[int, Reference],
    rank: int,
    group: tuple[int, ...],
    buffer: Buffer,
    index: int | None,
) -> Reference:
    total = values[rank]
    for peer in _others(rank, group):
        begun = total is not values[rank]
        total = total.reduce(values[peer], *(() if begun else (buffer, index)))
    return total


def _others(rank: int, group: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rest of a group, starting with the next, so that not all start with the same."""
    at = group.index(rank)
    return group[at + 1 :] + group[:at]


def two_step_alltoall(grid: Grid) -> Program:
    """Alltoall; out of place only, since every output overlaps another's input."""
    size = len(grid[0])
    schedule = Schedule(Collective.ALLTOALL, len(grid) * size, in_place=False)
    for distance in range(1, len(grid)):
        first = (distance - 1) * size
        pairs = [(row, grid[(node + distance) % len(grid)]) for node, row in enumerate(grid)]
        for row, remote_row in pairs:
            for local, rank in enumerate(row):
                for place in _rotated(local, size):
                    chunk = schedule.chunk(row[place], INPUT, remote_row[local])
                    chunk.copy(rank, SCRATCH, first + place)
        for row, remote_row in pairs:
            for rank, target in zip(row, remote_row, strict=True):
                _send_on(schedule, rank, first, row, target)
    for row in grid:
        for local, rank in enumerate(row):
            for peer in (row[place] for place in _rotated(local, size)):
                schedule.chunk(rank, INPUT, peer).copy(peer, OUTPUT, rank)
    return schedule.program()


def _send_on(schedule: Schedule, rank: int, first: int, row: tuple[int, ...], target: int) -> None:
    """Send the chunks of a node gathered at `rank`, in one message per run of the output."""
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[end - 1] + 1:
            waiting = schedule.chunk(rank, SCRATCH, first + start, end - start)
            waiting.copy(target, OUTPUT, row[start])
            start = end


def _rotated(local: int, size: int) -> list[int]:
    """Return the places of a node in turn from `local`, so that ranks start with different ones."""
    return [(local + distance) % size for distance in range(size)]


Grid = tuple[tuple[int, ...], ...]
"""Ranks by node, then by place in the node."""


def rail_grid(sketch: Sketch) -> Grid | None:
    """Return the grid of a sketch whose edges allow these algorithms, or None."""
    grid = node_grid(sketch)
    return grid if grid and len(linked_rails(sketch, grid)) == len(grid[0]) else None


def node_grid(sketch: Sketch) -> Grid | None:
    """Return the grid of a sketch of several equally large nodes, linked inside, or None."""
    nodes = sorted(set(sketch.node_of_rank))
    grid = tuple(
        tuple(rank for rank in range(sketch.ranks) if sketch.node_of_rank[rank] == node)
        for node in nodes
    )
    if len(grid) < 2 or len({len(row) for row in grid}) > 1:
        return None
    return grid if all(map(sketch.are_linked, grid)) else None


def linked_rails(sketch: Sketch, grid: Grid) -> tuple[tuple[int, ...], ...]:
    """Return the rails whose ranks all have links to each other."""
    return tuple(rail for rail in zip(*grid, strict=True) if sketch.are_linked(rail))


def hierarchical_all_gather(grid: Grid, chunks: int) -> Program:
    """All_gather: along the rails, and inside each node both its own and the arriving chunks."""
    program = Program(Collective.ALL_GATHER, len(grid) * len(grid[0]), chunks)
    for chunk in range(chunks):
        places = _places(grid, chunks, chunk)
        sources = {(node, i): program.input(grid[node][i], chunk) for node, i in places}
        _gather(program, grid, sources, places, channel=0)
    for rank in range(program.ranks):
        program.copy(program.input(rank, 0, chunks), program.output(rank, rank * chunks, chunks))
    return program


def hierarchical_reduce_scatter(grid: Grid, chunks: int) -> Program:
    """Reduce_scatter: each node sums what a rail needs, then the rail sums over the nodes."""
    program = Program(Collective.REDUCE_SCATTER, len(grid) * len(grid[0]), chunks)
    for chunk in range(chunks):
        places = _places(grid, chunks, chunk)
        targets = {(node, i): program.output(grid[node][i], chunk) for node, i in places}
        _scatter(program, grid, places, targets)
    return program


def hierarchical_all_reduce(grid: Grid, chunks: int) -> Program:
    """All_reduce: hierarchical reduce_scatter, then hierarchical all_gather.

    The all_gather has a channel of its own, so that it overlaps the reduce_scatter of later chunks.
    """
    ranks = len(grid) * len(grid[0])
    program = Program(Collective.ALL_REDUCE, ranks, ranks * chunks)
    for chunk in range(chunks):
        places = _places(grid, chunks, chunk)
        sums = {(node, i): program.output(grid[node][i], at) for (node, i), at in places.items()}
        _scatter(program, grid, places, sums)
        _gather(program, grid, sums, places, channel=1)
    return program


def _places(grid: Grid, chunks: int, chunk: int) -> dict[tuple[int, int], int]:
    """Return the offset of a chunk of every owner in the larger buffer, by (node, place)."""
    return {
        (node, local): rank * chunks + chunk
        for node, row in enumerate(grid)
        for local, rank in enumerate(row)
    }


def after(own: int, count: int) -> list[int]:
    """Return the other indices, starting with the next, so that not all start with the same."""
    return [(own + distance) % count for distance in range(1, count)]


def _gather(
    program: Program,
    grid: Grid,
    sources: dict[tuple[int, int], Chunk],
    places: dict[tuple[int, int], int],
    channel: int,
) -> None:
    """Copy every owner's chunk to every rank: along the rails first, since they are slowest."""
    held: dict[tuple[int, int, int], Chunk] = {}
    for (node, local), source in sources.items():
        held[node, local, node] = source
        for remote in after(node, len(grid)):
            target = program.output(grid[remote][local], places[node, local])
            held[node, local, remote] = program.copy(source, target, channel)
    for distance in range(len(grid)):
        for node, local in sources:
            holder = (node + distance) % len(grid)
            for peer in after(local, len(grid[0])):
                target = program.output(grid[holder][peer], places[node, local])
                program.copy(held[node, local, holder], target, channel)


def _scatter(
    program: Program,
    grid: Grid,
    places: dict[tuple[int, int], int],
    targets: dict[tuple[int, int], Chunk],
) -> None:
    """Sum every owner's chunk at the owner: remote nodes first, whose sums travel farther."""
    partial: dict[tuple[int, int, int], Chunk] = {}
    for distance in range(len(grid) - 1, -1, -1):
        for (node, local), place in places.items():
            holder = (node + distance) % len(grid)
            rank = grid[holder][local]
            target = program.scratch(rank) if distance else targets[node, local]
            total = program.input(rank, place)
            for peer in after(local, len(grid[0])):
                total = program.reduce(program.input(grid[holder][peer], place), target, total)
            partial[node, local, holder] = total
    for (node, local), target in targets.items():
        total = partial[node, local, node]
        for remote in after(node, len(grid)):
            total = program.reduce(partial[node, local, remote], target, total)


FEW_STEPS: Mapping[Collective, Mapping[str, Callable[[Grid], Program]]] = {
    Collective.ALL_REDUCE: {"two_step": two_step_all_reduce, "three_step": three_step_all_reduce},
    Collective.ALLTOALL: {"two_step": two_step_alltoall},
}
"""Algorithms with few steps for a rail grid, by collective and the end of their names."""

BUILDERS: Mapping[Collective, Callable[[Grid, int], Program]] = {
    Collective.ALL_GATHER: hierarchical_all_gather,
    Collective.REDUCE_SCATTER: hierarchical_reduce_scatter,
    Collective.ALL_REDUCE: hierarchical_all_reduce,
}
"""Algorithms for a rail grid and a number of chunks of a block."""
