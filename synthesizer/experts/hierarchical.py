"""Two-phase hierarchical algorithms: inside the nodes at full speed, between nodes along rails.

The l-th ranks of all nodes form rail l. A chunk crosses to another node once, on its owner's rail,
so every NIC carries an equal share (MSCCLang section 6.3). Nodes must be equally large, and each
node and each rail fully connected.
"""

from __future__ import annotations

from sketches.sketch import Sketch
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Program

Grid = tuple[tuple[int, ...], ...]
"""Ranks by node, then by place in the node."""


def rail_grid(sketch: Sketch) -> Grid | None:
    """Return the grid of a sketch whose edges allow these algorithms, or None."""
    nodes = sorted(set(sketch.node_of_rank))
    grid = tuple(
        tuple(rank for rank in range(sketch.ranks) if sketch.node_of_rank[rank] == node)
        for node in nodes
    )
    if len(grid) < 2 or len({len(row) for row in grid}) > 1:
        return None
    rails = tuple(zip(*grid, strict=True))
    linked = all(
        (a, b) in sketch.edge for group in (*grid, *rails) for a in group for b in group if a != b
    )
    return grid if linked else None


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


def _others(own: int, count: int) -> list[int]:
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
        for remote in _others(node, len(grid)):
            target = program.output(grid[remote][local], places[node, local])
            held[node, local, remote] = program.copy(source, target, channel)
    for distance in range(len(grid)):
        for node, local in sources:
            holder = (node + distance) % len(grid)
            for peer in _others(local, len(grid[0])):
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
            for peer in _others(local, len(grid[0])):
                total = program.reduce(program.input(grid[holder][peer], place), target, total)
            partial[node, local, holder] = total
    for (node, local), target in targets.items():
        total = partial[node, local, node]
        for remote in _others(node, len(grid)):
            total = program.reduce(partial[node, local, remote], target, total)
