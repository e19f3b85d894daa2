"""Two-phase hierarchical algorithms: inside the nodes at full speed, between nodes along rails.

The l-th rank of every node forms rail l. A chunk crosses to another node once, on its owner's rail,
so every NIC carries an equal part (MSCCLang section 6.3). Nodes must be equally large, the ranks of
a node linked all to all, and each rail all to all.
"""

from __future__ import annotations

from sketches.sketch import Sketch
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Program

Grid = tuple[tuple[int, ...], ...]
"""Ranks by node, then by place in the node."""


def rail_grid(sketch: Sketch) -> Grid | None:
    """The grid of a sketch whose edges allow these algorithms, else None."""
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
    """All_gather: along the rails, and inside each node what it has and what arrives."""
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

    The second half has a channel of its own, so that it overlaps the first half of later chunks.
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
    """Offset in the larger buffer of one chunk of every owner, by (node, place in the node)."""
    return {
        (node, local): rank * chunks + chunk
        for node, row in enumerate(grid)
        for local, rank in enumerate(row)
    }


def _others(own: int, count: int) -> list[int]:
    """Indices except `own`, nearest above first, so that not all start with the same one."""
    return [(own + distance) % count for distance in range(1, count)]


def _gather(
    program: Program,
    grid: Grid,
    sources: dict[tuple[int, int], Chunk],
    places: dict[tuple[int, int], int],
    channel: int,
) -> None:
    """Brings every owner's chunk to every rank: rails first, since they are slowest."""
    held: dict[tuple[int, int, int], Chunk] = {}
    for (node, local), source in sources.items():
        held[node, local, node] = source
        for other in _others(node, len(grid)):
            target = program.output(grid[other][local], places[node, local])
            held[node, local, other] = program.copy(source, target, channel)
    for distance in range(len(grid)):
        for node, local in sources:
            here = (node + distance) % len(grid)
            for peer in _others(local, len(grid[0])):
                target = program.output(grid[here][peer], places[node, local])
                program.copy(held[node, local, here], target, channel)


def _scatter(
    program: Program,
    grid: Grid,
    places: dict[tuple[int, int], int],
    targets: dict[tuple[int, int], Chunk],
) -> None:
    """Sums every owner's chunk at the owner: remote nodes first, whose sums travel farther."""
    partial: dict[tuple[int, int, int], Chunk] = {}
    for distance in range(len(grid) - 1, -1, -1):
        for (node, local), place in places.items():
            here = (node + distance) % len(grid)
            rank = grid[here][local]
            target = program.scratch(rank) if distance else targets[node, local]
            total = program.input(rank, place)
            for peer in _others(local, len(grid[0])):
                total = program.reduce(program.input(grid[here][peer], place), target, total)
            partial[node, local, here] = total
    for (node, local), target in targets.items():
        total = partial[node, local, node]
        for other in _others(node, len(grid)):
            total = program.reduce(partial[node, local, other], target, total)
