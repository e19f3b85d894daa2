"""Tree algorithms: reduce towards a root, broadcast from it, chunk after chunk.

With a binary tree the depth, and so the latency, grows with the logarithm of the rank count;
several chunks in flight let large buffers use every level at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sketches.sketch import Sketch
from synthesizer.collectives import Collective
from synthesizer.program import Chunk, Program


@dataclass(frozen=True, slots=True)
class Tree:
    """A spanning tree: ranks from the root down, and each one's parent (-1 for the root)."""

    order: tuple[int, ...]
    parent: tuple[int, ...]

    def children(self, rank: int) -> tuple[int, ...]:
        """Children of a rank in tree order."""
        return tuple(child for child in self.order if self.parent[child] == rank)


def binary_tree(sketch: Sketch, root: int, *, backwards: bool = False) -> Tree | None:
    """A spanning tree over edges that exist in both directions, None when there is none.

    Breadth first with at most two children per rank: a rank of a node not reached yet before ranks
    of the same node, so that a message crosses between nodes early and once per node. Ranks that
    this can't reach are attached wherever an edge leads, however many children that makes.
    Children are taken in order of rank, or `backwards` from the last one.
    """
    parent = {root: -1}
    order = [root]
    ranks = range(sketch.ranks)[:: -1 if backwards else 1]
    for limit in (2, sketch.ranks):
        queue = deque(order)
        while queue:
            rank = queue.popleft()
            for child in _attach(sketch, rank, parent, limit, ranks):
                parent[child] = rank
                order.append(child)
                queue.append(child)
    if len(order) < sketch.ranks:
        return None
    return Tree(tuple(order), tuple(parent[rank] for rank in range(sketch.ranks)))


def _attach(
    sketch: Sketch, rank: int, parent: dict[int, int], limit: int, ranks: range
) -> list[int]:
    """Ranks that `rank` takes as children; within a limit of two only where they belong."""
    node = sketch.node_of_rank
    reached = {node[member] for member in parent}
    room = limit - sum(above == rank for above in parent.values())
    linked = [
        child
        for child in ranks
        if child not in parent and (rank, child) in sketch.edge and (child, rank) in sketch.edge
    ]
    if limit > 2:
        return linked[:room]
    inside = [child for child in linked if node[child] == node[rank]]
    outside = [child for child in linked if node[child] not in reached]
    # One crossing each while there is work inside: the node's other ranks can cross as well.
    crossing = outside[: 1 if inside else 2]
    if len({node[child] for child in crossing}) < len(crossing):
        crossing = crossing[:1]
    return (crossing + inside)[:room]


def tree_reduce(tree: Tree, chunks: int) -> Program:
    """Reduce towards the tree's root."""
    program = Program(Collective.REDUCE, len(tree.order), chunks, tree.order[0])
    for chunk in range(chunks):
        _reduce_up(program, tree, chunk)
    return program


def tree_broadcast(tree: Tree, chunks: int) -> Program:
    """Broadcast from the tree's root."""
    root = tree.order[0]
    program = Program(Collective.BROADCAST, len(tree.order), chunks, root)
    for chunk in range(chunks):
        _broadcast_down(program, tree, program.input(root, chunk))
    program.copy(program.input(root, 0, chunks), program.output(root, 0, chunks))
    return program


def tree_all_reduce(tree: Tree, chunks: int) -> Program:
    """All_reduce: up the tree and down again."""
    program = Program(Collective.ALL_REDUCE, len(tree.order), chunks)
    totals = [_reduce_up(program, tree, chunk) for chunk in range(chunks)]
    for total in totals:
        _broadcast_down(program, tree, total)
    return program


def double_tree_all_reduce(trees: tuple[Tree, Tree], chunks: int) -> Program:
    """All_reduce over two trees, each on a channel of its own with half of the data.

    Leaves of the one are inner ranks of the other as far as the edges allow, so that every rank
    sends and receives the buffer about twice (Sanders et al. 2009, NCCL's tree).
    """
    program = Program(Collective.ALL_REDUCE, len(trees[0].order), len(trees) * chunks)
    places = [(channel, chunk) for chunk in range(chunks) for channel in range(len(trees))]
    totals = [
        _reduce_up(program, trees[channel], chunk * len(trees) + channel, channel)
        for channel, chunk in places
    ]
    for (channel, _), total in zip(places, totals, strict=True):
        _broadcast_down(program, trees[channel], total, channel)
    return program


def _reduce_up(program: Program, tree: Tree, chunk: int, channel: int = 0) -> Chunk:
    """Sums one chunk at the root; returns where the sum lies."""
    partial: dict[int, Chunk] = {}
    for rank in reversed(tree.order):
        total = program.input(rank, chunk)
        children = tree.children(rank)
        if children:
            at_root = tree.parent[rank] < 0
            target = program.output(rank, chunk) if at_root else program.scratch(rank)
            for child in children:
                total = program.reduce(partial[child], target, total, channel)
        partial[rank] = total
    return partial[tree.order[0]]


def _broadcast_down(program: Program, tree: Tree, source: Chunk, channel: int = 0) -> None:
    held = {tree.order[0]: source}
    for rank in tree.order[1:]:
        target = program.output(rank, source.offset)
        held[rank] = program.copy(held[tree.parent[rank]], target, channel)
