"""The channels of an NCCL graph that run a schedule's rings or trees.

NCCL joins the chains of a ring in the order of nodes, and builds trees from chains by its own
rules, so NCCL cannot express every ring or tree: others are refused with the reason.

In a ring every rank sends to one peer and receives from one, all in one cycle; for broadcast and
reduce the connection that closes the cycle carries nothing. In a tree partial sums go up from child
to parent, and results come down the same edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from lookup_tables.collective import Collective
from synthesizer.experts.nccl_trees import TREE_PATTERNS, Chain, Pattern, nccl_tree
from synthesizer.ir.algorithm import Algorithm, StepType
from tuccl.errors import FormatError

_SUMS = frozenset(
    {
        StepType.RECV_REDUCE_COPY,
        StepType.RECV_REDUCE_SEND,
        StepType.RECV_REDUCE_COPY_SEND,
    }
)


@dataclass(frozen=True, slots=True)
class RingShape:
    """Ranks in sending order; the last one sends to the first."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """The parent of each rank; -1 for the root."""

    parent: tuple[int, ...]


Shape = RingShape | TreeShape
_Carried = dict[tuple[int, int], set[bool]]
"""By source and destination, whether sums (True), plain data (False) or both arrive."""


def channel_shapes(algorithm: Algorithm) -> dict[int, Shape]:
    """Return rings and trees by channel, in the order of channels.

    Raises:
        FormatError: The operation has no ring or tree, or a channel is neither.
    """
    if not algorithm.collective.asks_tuner:
        raise FormatError(f"{algorithm.name}: {algorithm.collective} runs on neither ring nor tree")
    channels: dict[int, _Carried] = {}
    for program in algorithm.programs:
        for block in program.threadblocks:
            for step in block.steps:
                if step.type.receives:
                    carried = channels.setdefault(block.channel, {})
                    edge = (block.recv_peer, program.rank)
                    carried.setdefault(edge, set()).add(step.type in _SUMS)
    if not channels:
        raise FormatError(f"{algorithm.name}: no channel carries anything")
    return {channel: _shape(algorithm, channel, channels[channel]) for channel in sorted(channels)}


def _shape(algorithm: Algorithm, channel: int, carried: _Carried) -> Shape:
    if algorithm.collective is Collective.ALL_REDUCE:
        tree = _tree(algorithm.ranks, carried)
        if tree is not None:
            return tree
    where = f"{algorithm.name}, channel {channel}"
    following: dict[int, int] = {}
    for src, dst in sorted(carried):
        if src in following:
            no_tree = f"NCCL runs {algorithm.collective} on rings only"
            if algorithm.collective is Collective.ALL_REDUCE:
                no_tree = "no tree either, with sums going up and results down"
            raise FormatError(
                f"{where}: rank {src} sends to ranks {following[src]} and {dst}: no ring, and"
                f" {no_tree}"
            )
        following[src] = dst
    return RingShape(_ring(algorithm, where, following))


def _ring(algorithm: Algorithm, where: str, following: Mapping[int, int]) -> tuple[int, ...]:
    firsts = sorted(set(following) - set(following.values()))
    if firsts and not algorithm.collective.has_root:
        raise FormatError(f"{where}: rank {firsts[0]} receives nothing: no ring")
    rank = firsts[0] if firsts else min(following)
    order: list[int] = []
    while rank not in order:
        order.append(rank)
        rank = following.get(rank, order[0])
    if len(order) < algorithm.ranks:
        raise FormatError(
            f"{where}: {len(order)} of {algorithm.ranks} ranks are on the ring of rank {order[0]}"
        )
    return tuple(order)


def _tree(ranks: int, carried: _Carried) -> TreeShape | None:
    """Return the channel's tree, or None if it is no tree."""
    up = [(src, dst) for (src, dst), sums in carried.items() if sums == {True}]
    down = [(dst, src) for (src, dst), sums in carried.items() if sums == {False}]
    parent = dict(up)
    if sorted(up) != sorted(down) or len(up) + len(down) != len(carried):
        return None
    if len(parent) != len(up) or len(up) != ranks - 1:
        return None
    for rank in range(ranks):
        seen = {rank}
        while rank in parent:
            rank = parent[rank]  # noqa: PLW2901 - the walk to the root
            if rank in seen:
                return None
            seen.add(rank)
    return TreeShape(tuple(parent.get(rank, -1) for rank in range(ranks)))


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
