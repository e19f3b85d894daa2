"""Tree algorithms: reduce towards a root, broadcast from it, chunk after chunk.

With a binary tree the depth, and so the latency, grows with the logarithm of the rank count; with
several chunks in flight, large buffers use every level at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Reference, Schedule
from synthesizer.ir.program import Program


@dataclass(frozen=True, slots=True)
class Tree:
    """A spanning tree: ranks from the root down, and each rank's parent (-1 for the root)."""

    order: tuple[int, ...]
    parent: tuple[int, ...]

    def children(self, rank: int) -> tuple[int, ...]:
        """Return the children of a rank in tree order."""
        return tuple(child for child in self.order if self.parent[child] == rank)


def binary_tree(sketch: Sketch, root: int, *, backwards: bool = False) -> Tree | None:
    """Return a spanning tree over edges that exist in both directions, or None.

    The tree grows breadth first with at most two children per rank; ranks of nodes not reached yet
    precede ranks of the same node, so that messages cross between nodes early and once per node.
    Ranks not reached this way are attached by any edge, without a limit on children. Children are
    taken in order of rank, or in reverse order if `backwards`.
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
    """Return the new children of `rank`; with a limit of two, of its own or unreached nodes."""
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
    # One crossing per rank while the node has unreached ranks, which can cross as well.
    crossing = outside[: 1 if inside else 2]
    if len({node[child] for child in crossing}) < len(crossing):
        crossing = crossing[:1]
    return (crossing + inside)[:room]


def tree_reduce(tree: Tree, chunks: int) -> Program:
    """Reduce towards the tree's root."""
    schedule = Schedule(Collective.REDUCE, len(tree.order), chunks, tree.order[0])
    for chunk in range(chunks):
        _reduce_up(schedule, tree, chunk)
    return schedule.program()


def tree_broadcast(tree: Tree, chunks: int) -> Program:
    """Broadcast from the tree's root."""
    root = tree.order[0]
    schedule = Schedule(Collective.BROADCAST, len(tree.order), chunks, root)
    whole = schedule.chunk(root, INPUT, 0, chunks)
    for chunk in range(chunks):
        _broadcast_down(tree, schedule.chunk(root, INPUT, chunk))
    whole.copy(root, OUTPUT, 0)
    return schedule.program()


def tree_all_reduce(trees: Sequence[Tree], chunks: int) -> Program:
    """All_reduce: up the trees and down again, each with its share of the data on its own channel.

    With two trees, the leaves of each are inner ranks of the other as far as the edges allow, so
    that every rank sends and receives the buffer about twice (Sanders et al. 2009, NCCL's tree).
    """
    schedule = Schedule(Collective.ALL_REDUCE, len(trees[0].order), len(trees) * chunks)
    chunk_trees = [
        (tree, chunk * len(trees) + channel, channel)
        for chunk in range(chunks)
        for channel, tree in enumerate(trees)
    ]
    totals = [_reduce_up(schedule, *chunk_tree) for chunk_tree in chunk_trees]
    for (tree, _, channel), total in zip(chunk_trees, totals, strict=True):
        _broadcast_down(tree, total, channel)
    return schedule.program()


def _reduce_up(schedule: Schedule, tree: Tree, chunk: int, channel: int = 0) -> Reference:
    sums = {rank: schedule.chunk(rank, INPUT, chunk) for rank in tree.order}
    for rank in reversed(tree.order):
        at_root = tree.parent[rank] < 0
        for child in tree.children(rank):
            if sums[rank].buffer is not INPUT:
                sums[rank] = sums[rank].reduce(sums[child], channel=channel)
            elif at_root:
                sums[rank] = sums[rank].reduce(sums[child], OUTPUT, chunk, channel)
            else:
                sums[rank] = sums[rank].reduce(sums[child], SCRATCH, None, channel)
    return sums[tree.order[0]]


def _broadcast_down(tree: Tree, source: Reference, channel: int = 0) -> None:
    held = {tree.order[0]: source}
    for rank in tree.order[1:]:
        held[rank] = held[tree.parent[rank]].copy(rank, OUTPUT, source.index, channel)


ROOTED_BUILDERS: Mapping[Collective, Callable[[Tree, int], Program]] = {
    Collective.BROADCAST: tree_broadcast,
    Collective.REDUCE: tree_reduce,
}
"""Algorithms for a tree from the root and a number of chunks."""
