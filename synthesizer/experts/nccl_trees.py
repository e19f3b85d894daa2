"""The trees that NCCL builds from a chain of ranks on every node.

A graph file gives NCCL one order of GPUs per node and channel. Inside a node the tree is that
chain. Between nodes NCCL always runs both trees of a double binary tree over the nodes; the pattern
decides which rank of a node is connected to the parent node and which to the child nodes (NCCL 2.30
src/graph/connect.cc and src/graph/trees.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

Chain = tuple[int, ...]
"""Ranks of a node from the one nearest the root to the one farthest from it."""


class Pattern(IntEnum):
    """NCCL's graph patterns; those of trees differ in the ranks above the child nodes."""

    BALANCED_TREE = 1
    """The first child node is below the second rank, the second child node below the first."""
    SPLIT_TREE = 2
    """Both child nodes are below the second rank."""
    TREE = 3
    """Both child nodes are below the first rank."""
    RING = 4


TREE_PATTERNS = (Pattern.BALANCED_TREE, Pattern.SPLIT_TREE, Pattern.TREE)


def node_trees(nodes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return each node's parent (-1 for the root) in both trees of the double binary tree."""
    first = tuple(_parent(nodes, node) for node in range(nodes))
    if nodes % 2:
        moved = [_parent(nodes, (node - 1) % nodes) for node in range(nodes)]
        second = tuple(-1 if parent < 0 else (parent + 1) % nodes for parent in moved)
    else:
        mirrored = [_parent(nodes, nodes - 1 - node) for node in range(nodes)]
        second = tuple(-1 if parent < 0 else nodes - 1 - parent for parent in mirrored)
    return first, second


def _parent(nodes: int, node: int) -> int:
    """Return a node's parent in the binary tree whose leaves are the odd nodes."""
    if node == 0:
        return -1
    bit = node & -node
    parent = (node ^ bit) | (bit << 1)
    return parent if parent < nodes else node ^ bit


def nccl_tree(chains: Sequence[Chain], pattern: Pattern, *, second: bool) -> tuple[int, ...]:
    """Return each rank's parent (-1 for the root) in one of NCCL's two trees over the chains."""
    ranks = sum(len(chain) for chain in chains)
    parent = [-1] * ranks
    for chain in chains:
        for above, below in pairwise(chain):
            parent[below] = above
    nodes = len(chains)
    for node, above in enumerate(node_trees(nodes)[second]):
        if above >= 0:
            # A node is a first child if its place in the unshifted tree is below its parent's.
            place, above_place = (_place(nodes, n, second=second) for n in (node, above))
            first_child = place < above_place
            parent[chains[node][0]] = _rank_above_children(
                chains[above], pattern, first_child=first_child
            )
    return tuple(parent)


def _place(nodes: int, node: int, *, second: bool) -> int:
    if not second:
        return node
    return (node - 1) % nodes if nodes % 2 else nodes - 1 - node


def _rank_above_children(chain: Chain, pattern: Pattern, *, first_child: bool) -> int:
    on_second = pattern is Pattern.SPLIT_TREE or (pattern is Pattern.BALANCED_TREE and first_child)
    return chain[1 if on_second and len(chain) > 1 else 0]
