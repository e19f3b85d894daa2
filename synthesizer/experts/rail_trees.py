"""Broadcast and reduce over many nodes: every rail carries a part of the data along two trees.

The root hands each rank of its node the part of that rank's rail. A rail has two binary trees over
the other nodes, of which each node is a leaf in one at least (Sanders et al. 2009, NCCL's trees),
and each takes every second chunk: so a NIC sends and receives its part about once, and the depth
grows with the logarithm of the nodes. Inside a node a rank hands on what its NIC brings, a group of
chunks at a time, because links inside nodes need no short pipeline to be ahead of the NICs. The
root would have to hand its own rail's part to all of its node: another rank does that in its place,
a different one for each group. Reduce runs the same ways backwards, adding up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from synthesizer.experts.hierarchical import Grid
from synthesizer.experts.nccl_trees import node_trees
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Program

GROUP = 4
"""Chunks that travel together inside a node; even, so that both trees have as many of them."""

_Hop = tuple[int, int]
"""Sender and receiver of a broadcast."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """Where a group of chunks goes from the root."""

    first: int
    """Offset of its first chunk."""
    before: tuple[_Hop, ...]
    """From the root to its rail, all chunks together."""
    rail: tuple[tuple[_Hop, ...], ...]
    """From node to node, by chunk."""
    after: tuple[_Hop, ...]
    """Inside the nodes, all chunks together."""


def rail_broadcast(grid: Grid, root: int, groups: int) -> Program:
    """Broadcast of `groups` groups of chunks on each rail.

    Args:
        grid: As `synthesizer.experts.hierarchical.rail_grid` gives it.
        root: A rank of it.
        groups: Of each rail: one for latency, several to keep every NIC busy.
    """
    program = _program(Collective.BROADCAST, grid, root, groups)

    def copy(hop: _Hop, offset: int, count: int) -> None:
        source = program.input if hop[0] == root else program.output
        program.copy(source(hop[0], offset, count), program.output(hop[1], offset, count))

    for ways in _ways(grid, root, groups):
        for hop in ways.before:
            copy(hop, ways.first, GROUP)
        for chunk, hops in enumerate(ways.rail, ways.first):
            for hop in hops:
                copy(hop, chunk, 1)
        for hop in ways.after:
            copy(hop, ways.first, GROUP)
    program.copy(program.input(root, 0, program.chunks), program.output(root, 0, program.chunks))
    return program


def rail_reduce(grid: Grid, root: int, groups: int) -> Program:
    """Reduce of `groups` groups of chunks on each rail; arguments as of `rail_broadcast`."""
    program = _program(Collective.REDUCE, grid, root, groups)
    for ways in _ways(grid, root, groups):
        sums = _Sums(program, ways.first)
        for hop in reversed(ways.after):
            sums.add(hop, 0, GROUP)
        for chunk, hops in enumerate(ways.rail):
            for hop in reversed(hops):
                sums.add(hop, chunk, 1)
        for hop in reversed(ways.before):
            sums.add(hop, 0, GROUP)
    return program


def _program(collective: Collective, grid: Grid, root: int, groups: int) -> Program:
    locals_ = len(grid[0])
    return Program(collective, len(grid) * locals_, locals_ * groups * GROUP, root)


def _ways(grid: Grid, root: int, groups: int) -> Iterator[_Ways]:
    """Ways of all groups, those that start together next to each other."""
    home = next(node for node, row in enumerate(grid) if root in row)
    nodes = [*range(home, len(grid)), *range(home)]
    trees = [
        [tuple(_tree(grid, nodes, local, parents)) for parents in node_trees(len(nodes) - 1)]
        for local in range(len(grid[0]))
    ]
    for group in range(groups):
        for local, both in enumerate(trees):
            giver = grid[home][local]
            yield _Ways(
                first=(local * groups + group) * GROUP,
                before=() if giver == root else ((root, giver),),
                rail=tuple(both[chunk % 2] for chunk in range(GROUP)),
                after=(
                    *_inside_home(grid[home], root, giver, group),
                    *((grid[node][local], peer) for node in nodes[1:]
                      for peer in grid[node] if peer != grid[node][local]),
                ),
            )  # fmt: skip


def _tree(grid: Grid, nodes: list[int], local: int, parents: tuple[int, ...]) -> Iterator[_Hop]:
    """Hops along a rail from the first node over a tree of the others, from the top down."""
    waiting = [-1]
    for above in waiting:
        for place, parent in enumerate(parents):
            if parent == above:
                yield grid[nodes[above + 1]][local], grid[nodes[place + 1]][local]
                waiting.append(place)


def _inside_home(row: tuple[int, ...], root: int, giver: int, group: int) -> tuple[_Hop, ...]:
    """Hops inside the root's node."""
    peers = [rank for rank in row if rank not in {root, giver}]
    if giver != root or not peers:
        return tuple((giver, peer) for peer in peers)
    instead = peers.pop(group % len(peers))
    return ((root, instead), *((instead, peer) for peer in peers))


@dataclass(slots=True)
class _Sums:
    """What the ranks have added up of a group of chunks."""

    program: Program
    first: int
    place: dict[int, Chunk] = field(default_factory=dict)
    begun: set[tuple[int, int]] = field(default_factory=set)
    """Ranks, and chunks of which they hold more than their own part."""

    def add(self, hop: _Hop, chunk: int, count: int) -> None:
        """Adds the receiver's sum of some chunks to the sender's."""
        rank, below = hop
        if rank not in self.place:
            at_root = rank == self.program.root
            self.place[rank] = (
                self.program.output(rank, self.first, GROUP)
                if at_root
                else self.program.scratch(rank, GROUP)
            )
        target = _part(self.place[rank], chunk, count)
        self.program.reduce(self._held(below, chunk, count), target, self._held(rank, chunk, count))
        self.begun |= {(rank, chunk + i) for i in range(count)}

    def _held(self, rank: int, chunk: int, count: int) -> Chunk:
        if (rank, chunk) in self.begun:
            return _part(self.place[rank], chunk, count)
        return self.program.input(rank, self.first + chunk, count)


def _part(chunk: Chunk, first: int, count: int) -> Chunk:
    return replace(chunk, offset=chunk.offset + first, count=count)
