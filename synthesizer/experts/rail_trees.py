"""Broadcast and reduce over many nodes: every rail carries a share of the data along two trees.

The root sends each rank of its node the share of that rank's rail. A rail has two binary trees over
the other nodes, and each node is a leaf in at least one of them (Sanders et al. 2009, NCCL's
trees). The trees alternate by chunk, so a NIC sends and receives its share about once, and the
depth grows with the logarithm of the nodes. Inside a node a rank forwards what its NIC receives, a
group of chunks at a time, because links inside nodes are ahead of the NICs even so. For the share
of the root's own rail, another rank of the root's node does this in its place, a different one for
each group. Reduce runs the same hops in reverse, with sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from lookup_tables.collective import Collective
from synthesizer.experts.hierarchical import Grid
from synthesizer.experts.nccl_trees import node_trees
from synthesizer.ir.program import Chunk, Program

GROUP = 4
"""Chunks that are sent together inside a node; even, so that both trees have equally many."""

_Hop = tuple[int, int]
"""Sender and receiver of a broadcast."""


@dataclass(frozen=True, slots=True)
class _Route:
    first: int
    """Offset of the group's first chunk."""
    before: tuple[_Hop, ...]
    """Hops from the root to the rail, all chunks together."""
    rail: tuple[tuple[_Hop, ...], ...]
    """Hops from node to node, by chunk."""
    after: tuple[_Hop, ...]
    """Hops inside the nodes, all chunks together."""


def rail_broadcast(grid: Grid, root: int, groups: int) -> Program:
    """Broadcast of `groups` groups of chunks on each rail.

    Each rail has `groups` of chunks: one for latency, several to keep every NIC busy.
    """
    program = _program(Collective.BROADCAST, grid, root, groups)

    def copy(hop: _Hop, offset: int, count: int) -> None:
        source = program.input if hop[0] == root else program.output
        program.copy(source(hop[0], offset, count), program.output(hop[1], offset, count))

    for route in _routes(grid, root, groups):
        for hop in route.before:
            copy(hop, route.first, GROUP)
        for chunk, hops in enumerate(route.rail, route.first):
            for hop in hops:
                copy(hop, chunk, 1)
        for hop in route.after:
            copy(hop, route.first, GROUP)
    program.copy(program.input(root, 0, program.chunks), program.output(root, 0, program.chunks))
    return program


def rail_reduce(grid: Grid, root: int, groups: int) -> Program:
    """Reduce of `groups` groups of chunks on each rail; arguments as for `rail_broadcast`."""
    program = _program(Collective.REDUCE, grid, root, groups)
    for route in _routes(grid, root, groups):
        sums = _Sums(program, route.first)
        for hop in reversed(route.after):
            sums.add(hop, 0, GROUP)
        for chunk, hops in enumerate(route.rail):
            for hop in reversed(hops):
                sums.add(hop, chunk, 1)
        for hop in reversed(route.before):
            sums.add(hop, 0, GROUP)
    return program


def _program(collective: Collective, grid: Grid, root: int, groups: int) -> Program:
    locals_ = len(grid[0])
    return Program(collective, len(grid) * locals_, locals_ * groups * GROUP, root)


def _routes(grid: Grid, root: int, groups: int) -> Iterator[_Route]:
    """Yield the routes of all groups; groups that start together are next to each other."""
    home = next(node for node, row in enumerate(grid) if root in row)
    nodes = [*range(home, len(grid)), *range(home)]
    trees = [
        [tuple(_tree(grid, nodes, local, parents)) for parents in node_trees(len(nodes) - 1)]
        for local in range(len(grid[0]))
    ]
    for group in range(groups):
        for local, tree_pair in enumerate(trees):
            holder = grid[home][local]
            yield _Route(
                first=(local * groups + group) * GROUP,
                before=() if holder == root else ((root, holder),),
                rail=tuple(tree_pair[chunk % 2] for chunk in range(GROUP)),
                after=(
                    *_inside_home(grid[home], root, holder, group),
                    *((grid[node][local], peer) for node in nodes[1:]
                      for peer in grid[node] if peer != grid[node][local]),
                ),
            )  # fmt: skip


def _tree(grid: Grid, nodes: list[int], local: int, parents: tuple[int, ...]) -> Iterator[_Hop]:
    """Yield the hops along a rail from the first node down a tree of the other nodes."""
    waiting = [-1]
    for above in waiting:
        for place, parent in enumerate(parents):
            if parent == above:
                yield grid[nodes[above + 1]][local], grid[nodes[place + 1]][local]
                waiting.append(place)


def _inside_home(row: tuple[int, ...], root: int, holder: int, group: int) -> tuple[_Hop, ...]:
    peers = [rank for rank in row if rank not in {root, holder}]
    if holder != root or not peers:
        return tuple((holder, peer) for peer in peers)
    substitute = peers.pop(group % len(peers))
    return ((root, substitute), *((substitute, peer) for peer in peers))


@dataclass(slots=True)
class _Sums:
    program: Program
    first: int
    place: dict[int, Chunk] = field(default_factory=dict)
    begun: set[tuple[int, int]] = field(default_factory=set)
    """(rank, chunk) whose partial sum includes contributions of other ranks."""

    def add(self, hop: _Hop, chunk: int, count: int) -> None:
        """Add the sums of a hop's receiver to those of its sender."""
        rank, below = hop
        if rank not in self.place:
            at_root = rank == self.program.root
            self.place[rank] = (
                self.program.output(rank, self.first, GROUP)
                if at_root
                else self.program.scratch(rank, GROUP)
            )
        target = _slice(self.place[rank], chunk, count)
        self.program.reduce(self._held(below, chunk, count), target, self._held(rank, chunk, count))
        self.begun |= {(rank, chunk + i) for i in range(count)}

    def _held(self, rank: int, chunk: int, count: int) -> Chunk:
        if (rank, chunk) in self.begun:
            return _slice(self.place[rank], chunk, count)
        return self.program.input(rank, self.first + chunk, count)


def _slice(chunk: Chunk, first: int, count: int) -> Chunk:
    return replace(chunk, offset=chunk.offset + first, count=count)


BUILDERS: Mapping[Collective, Callable[[Grid, int, int], Program]] = {
    Collective.BROADCAST: rail_broadcast,
    Collective.REDUCE: rail_reduce,
}
"""Algorithms for a rail grid, a root and a number of groups."""
