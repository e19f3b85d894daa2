"""The channels of an NCCL graph that run a schedule's rings or trees.

NCCL joins the chains of a ring in the order of nodes, and builds trees from chains by its own
rules, so NCCL cannot express every ring or tree: others are refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from synthesizer.experts.nccl_trees import TREE_PATTERNS, Chain, Pattern, nccl_tree
from synthesizer.formats.channel_shapes import RingShape, Shape, TreeShape, channel_shapes
from synthesizer.ir.algorithm import Algorithm
from tuccl.errors import FormatError


@dataclass(frozen=True, slots=True)
class GraphChannel:
    """One channel: the order of ranks on every node, and the connections that it uses."""

    chains: tuple[Chain, ...]
    hops: tuple[tuple[int, int], ...]
    """Connections between ranks, once per use; each of NCCL's two trees carries half the data."""


def nccl_channels(
    algorithm: Algorithm, node_of_rank: Sequence[int]
) -> tuple[Pattern, tuple[GraphChannel, ...]]:
    """Return the channels of the NCCL graph that runs the schedule's rings or trees.

    Raises:
        FormatError: NCCL cannot run them.
    """
    if algorithm.ranks != len(node_of_rank):
        raise FormatError(
            f"{algorithm.name} has {algorithm.ranks} ranks, the machine {len(node_of_rank)}"
        )
    shapes = channel_shapes(algorithm)
    rings = {n: shape for n, shape in shapes.items() if isinstance(shape, RingShape)}
    trees = {n: shape for n, shape in shapes.items() if isinstance(shape, TreeShape)}
    if rings and trees:
        raise FormatError(
            f"{algorithm.name}: channel {min(rings)} is a ring and channel {min(trees)} a tree;"
            " NCCL runs an operation on one or the other"
        )
    if rings:
        pattern = Pattern.RING
        channels = tuple(
            _ring_channel(f"{algorithm.name}, channel {n}", ring.order, node_of_rank)
            for n, ring in rings.items()
        )
    else:
        pattern, channels = _tree_channels(algorithm.name, trees, node_of_rank)
    return pattern, channels


def _ring_channel(where: str, order: Sequence[int], node_of_rank: Sequence[int]) -> GraphChannel:
    """Return the chain of each node, if the ring visits the nodes in NCCL's order."""
    nodes = len(set(node_of_rank))
    start = order.index(0)
    if nodes > 1:
        # Begin where the ring enters node 0.
        while node_of_rank[order[start - 1]] == node_of_rank[0]:
            start = (start - 1) % len(order)
    turned = [*order[start:], *order[:start]]
    chains = tuple(tuple(chain) for _, chain in groupby(turned, key=lambda r: node_of_rank[r]))
    visited = [node_of_rank[chain[0]] for chain in chains]
    if visited != list(range(nodes)):
        raise FormatError(
            f"{where}: the ring visits the nodes in the order"
            f" {', '.join(str(node) for node in visited[: nodes + 1])};"
            " NCCL passes every node once, in their order"
        )
    hops = tuple(zip(turned, [*turned[1:], turned[0]], strict=True))
    return GraphChannel(chains, hops)


def _tree_channels(
    name: str, trees: Mapping[int, TreeShape], node_of_rank: Sequence[int]
) -> tuple[Pattern, tuple[GraphChannel, ...]]:
    """Return the chains over which NCCL's trees are the schedule's trees."""
    found: dict[tuple[Chain, ...], list[TreeShape]] = {}
    for number, tree in trees.items():
        chains = _chains(f"{name}, channel {number}", tree, node_of_rank)
        found.setdefault(chains, []).append(tree)
    for pattern in TREE_PATTERNS:
        channels = [
            channel
            for chains, chain_trees in found.items()
            for channel in _paired(chains, [tree.parent for tree in chain_trees], pattern)
        ]
        if len(channels) == sum(
            _copies(chains, chain_trees) for chains, chain_trees in found.items()
        ):
            return pattern, tuple(channels)
    raise FormatError(
        f"{name}: its trees between nodes are not the two of NCCL's double binary tree over"
        f" {len(set(node_of_rank))} nodes, each as often as the other"
    )


def _copies(chains: Sequence[Chain], trees: Sequence[Shape]) -> float:
    """Return the graph channels of the trees: on several nodes each channel is a pair of trees."""
    return len(trees) / (2 if len(chains) > 1 else 1)


def _paired(
    chains: tuple[Chain, ...], trees: Sequence[tuple[int, ...]], pattern: Pattern
) -> Iterator[GraphChannel]:
    """Yield a channel for each occurrence of NCCL's trees over these chains."""
    wanted = [nccl_tree(chains, pattern, second=second) for second in (False, True)]
    if len(chains) == 1:
        count, used = trees.count(wanted[0]), wanted[:1]
    else:
        count, used = min(trees.count(tree) for tree in wanted), wanted
    hops = tuple(
        hop
        for parent in used
        for rank, above in enumerate(parent)
        if above >= 0
        for hop in ((rank, above), (above, rank))
    )
    return (GraphChannel(chains, hops) for _ in range(count))


def _chains(where: str, tree: TreeShape, node_of_rank: Sequence[int]) -> tuple[Chain, ...]:
    """Return the chain of each node, if the tree is a chain inside every node."""
    chains: list[Chain] = []
    for node in range(len(set(node_of_rank))):
        members = [rank for rank, home in enumerate(node_of_rank) if home == node]
        below: dict[int, int] = {}
        for rank in members:
            above = tree.parent[rank]
            if above in members:
                if above in below:
                    raise FormatError(
                        f"{where}: rank {above} has children {below[above]} and {rank} on its own"
                        " node; NCCL's trees are chains inside a node"
                    )
                below[above] = rank
        heads = [rank for rank in members if tree.parent[rank] not in members]
        if len(heads) > 1:
            raise FormatError(
                f"{where}: ranks {heads[0]} and {heads[1]} of node {node} have their parents on"
                " other nodes; NCCL's trees enter a node once"
            )
        chain = [heads[0]]
        while chain[-1] in below:
            chain.append(below[chain[-1]])
        chains.append(tuple(chain))
    return tuple(chains)
