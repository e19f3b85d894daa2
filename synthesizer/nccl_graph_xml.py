"""NCCL graph files (`NCCL_GRAPH_FILE`): the rings and trees of a schedule for a stock NCCL.

Elements and attributes as NCCL 2.30 reads and writes them (src/graph/search.cc, src/graph/xml.cc).
GPUs and NICs go by `dev`, in hexadecimal, which NCCL looks up on its own host; `rank`, which would
bind the file to one node, is left out, so a file serves every node whose order it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from synthesizer.algorithm import Algorithm
from synthesizer.channel_shapes import RingShape, Shape, TreeShape, channel_shapes
from synthesizer.errors import ExportError
from synthesizer.nccl_graph_figures import GraphMachine, graph_figures
from synthesizer.nccl_trees import TREE_PATTERNS, Chain, Pattern, nccl_tree

MAX_CHANNELS = 32
"""Channels of a graph: half of NCCL's MAXCHANNELS, because NCCL doubles them."""

_RING_ID, _TREE_ID = 0, 1


@dataclass(frozen=True, slots=True)
class GraphChannel:
    """One channel: the order of ranks on every node, and the connections it uses."""

    chains: tuple[Chain, ...]
    hops: tuple[tuple[int, int], ...]
    """Between ranks, each once per use; a tree's two versions carry half the data each."""


def write_nccl_graph_xml(
    algorithm: Algorithm, machine: GraphMachine, node: int | None = None, copies: int = 1
) -> str:
    """Write a graph file.

    Args:
        algorithm: A schedule of rings, or one of trees.
        machine: The machine it was made for.
        node: The node that the file is for; None for one file that serves all.
        copies: How often each channel is listed. A channel is one threadblock, which moves a few
            tens of GB/s; NCCL's own graphs have as many channels as the links need.

    Raises:
        ExportError: The schedule runs on something that NCCL cannot: says which channel and why.
            Or nodes need different files, and one was asked for.
    """
    pattern, once = nccl_channels(algorithm, machine.node_of_rank)
    channels = once * copies
    if not 1 <= len(channels) <= MAX_CHANNELS:
        raise ExportError(
            f"{algorithm.name}: {len(once)} channels x {copies} copies; NCCL takes at most"
            f" {MAX_CHANNELS} channels"
        )
    nodes = len(channels[0].chains)
    if node is not None and not 0 <= node < nodes:
        raise ExportError(f"{algorithm.name}: there is no node {node}, there are {nodes}")
    local = [
        [_local_channel(machine, pattern, channel, n) for channel in channels] for n in range(nodes)
    ]
    cross_nic = 0 if node is not None else _cross_nic(algorithm.name, pattern, local)
    figures = graph_figures(
        machine,
        [hop for channel in channels for hop in channel.hops],
        weight=0.5 if pattern is not Pattern.RING and nodes > 1 else 1.0,
    )
    written = local[node or 0]
    same = len({channel.gpus for channel in written}) == 1
    head = (
        f'  <graph id="{_RING_ID if pattern is Pattern.RING else _TREE_ID}" pattern="{pattern:d}"'
        f' crossnic="{cross_nic}" nchannels="{len(channels)}"'
        f' speedintra="{figures.speed_intra_gb_per_s:g}"'
        f' speedinter="{figures.speed_inter_gb_per_s:g}" latencyinter="0"'
        f' typeintra="{figures.type_intra}" typeinter="{figures.type_inter}"'
        f' samechannels="{same:d}">'
    )
    body = [line for channel in written for line in _channel_lines(channel)]
    return "\n".join(['<graphs version="1">', head, *body, "  </graph>", "</graphs>\n"])


@dataclass(frozen=True, slots=True)
class _LocalChannel:
    """A channel as one node sees it: indices of GPUs, and of the NICs at both ends."""

    gpus: tuple[int, ...]
    nics: tuple[int, int] | None


def _local_channel(
    machine: GraphMachine, pattern: Pattern, channel: GraphChannel, node: int
) -> _LocalChannel:
    chain = channel.chains[node]
    gpus = tuple(machine.gpu_of_rank[rank] for rank in chain)
    if len(channel.chains) == 1:
        return _LocalChannel(gpus, None)
    # NCCL takes the first NIC for the chain's first rank, the other for whoever else crosses.
    other = {Pattern.RING: chain[-1], Pattern.TREE: chain[0]}.get(pattern, chain[:2][-1])
    return _LocalChannel(gpus, (machine.nic(chain[0]), machine.nic(other)))


def _cross_nic(name: str, pattern: Pattern, local: Sequence[Sequence[_LocalChannel]]) -> int:
    """What `crossnic` makes the first node's file right for all nodes.

    With 2, NCCL exchanges channels 0 and 1, 2 and 3, ... of rings on every second node.
    """
    first = list(local[0])
    if all(list(channels) == first for channels in local):
        return 0
    if pattern is Pattern.RING and len(first) % 2 == 0:
        exchanged = [first[number ^ 1] for number in range(len(first))]
        if all(list(c) == (exchanged if n % 2 else first) for n, c in enumerate(local)):
            return 2
    other = next(n for n, channels in enumerate(local) if list(channels) != first)
    raise ExportError(
        f"{name}: nodes 0 and {other} order their GPUs differently, and NCCL reads one graph file"
        " per node; write one for each"
    )


def _channel_lines(channel: _LocalChannel) -> Iterator[str]:
    yield "    <channel>"
    if channel.nics:
        yield f'      <net dev="{_hexadecimal(channel.nics[0])}"/>'
    for gpu in channel.gpus:
        yield f'      <gpu dev="{_hexadecimal(gpu)}"/>'
    if channel.nics:
        yield f'      <net dev="{_hexadecimal(channel.nics[1])}"/>'
    yield "    </channel>"


def _hexadecimal(number: int) -> str:
    """As C's `%#x` writes it."""
    return f"{number:#x}" if number else "0"


def nccl_channels(
    algorithm: Algorithm, node_of_rank: Sequence[int]
) -> tuple[Pattern, tuple[GraphChannel, ...]]:
    """The channels of NCCL's graph that run what the schedule runs.

    Raises:
        ExportError: There are none.
    """
    if algorithm.ranks != len(node_of_rank):
        raise ExportError(
            f"{algorithm.name}: {algorithm.ranks} ranks, the machine has {len(node_of_rank)}"
        )
    shapes = channel_shapes(algorithm)
    rings = {n: shape for n, shape in shapes.items() if isinstance(shape, RingShape)}
    trees = {n: shape for n, shape in shapes.items() if isinstance(shape, TreeShape)}
    if rings and trees:
        raise ExportError(
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
    """The part of each node, if the ring goes from node to node as NCCL joins them."""
    nodes = len(set(node_of_rank))
    start = order.index(0)
    if nodes > 1:
        # Begin where the ring comes to node 0.
        while node_of_rank[order[start - 1]] == node_of_rank[0]:
            start = (start - 1) % len(order)
    turned = [*order[start:], *order[:start]]
    chains = tuple(tuple(part) for _, part in groupby(turned, key=lambda r: node_of_rank[r]))
    visited = [node_of_rank[chain[0]] for chain in chains]
    if visited != list(range(nodes)):
        raise ExportError(
            f"{where}: the ring visits the nodes in the order"
            f" {', '.join(str(node) for node in visited[: nodes + 1])};"
            " NCCL passes every node once, in their order"
        )
    hops = tuple(zip(turned, [*turned[1:], turned[0]], strict=True))
    return GraphChannel(chains, hops)


def _tree_channels(
    name: str, trees: Mapping[int, TreeShape], node_of_rank: Sequence[int]
) -> tuple[Pattern, tuple[GraphChannel, ...]]:
    """Chains such that NCCL's trees over them are the schedule's."""
    found: dict[tuple[Chain, ...], list[TreeShape]] = {}
    for number, tree in trees.items():
        chains = _chains(f"{name}, channel {number}", tree, node_of_rank)
        found.setdefault(chains, []).append(tree)
    for pattern in TREE_PATTERNS:
        channels = [
            channel
            for chains, given in found.items()
            for channel in _paired(chains, [tree.parent for tree in given], pattern)
        ]
        if len(channels) == sum(_copies(chains, given) for chains, given in found.items()):
            return pattern, tuple(channels)
    raise ExportError(
        f"{name}: its trees between nodes are not the two of NCCL's double binary tree over"
        f" {len(set(node_of_rank))} nodes, each as often as the other"
    )


def _copies(chains: Sequence[Chain], trees: Sequence[Shape]) -> float:
    """Graph channels that so many trees make: on several nodes each channel is a pair of them."""
    return len(trees) / (2 if len(chains) > 1 else 1)


def _paired(
    chains: tuple[Chain, ...], trees: Sequence[tuple[int, ...]], pattern: Pattern
) -> Iterator[GraphChannel]:
    """As many channels as the trees have both of NCCL's trees over these chains."""
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
    """The chain of each node, if the tree is one inside every node."""
    chains: list[Chain] = []
    for node in range(len(set(node_of_rank))):
        members = [rank for rank, home in enumerate(node_of_rank) if home == node]
        below: dict[int, int] = {}
        for rank in members:
            above = tree.parent[rank]
            if above in members:
                if above in below:
                    raise ExportError(
                        f"{where}: rank {above} has children {below[above]} and {rank} on its own"
                        " node; NCCL's trees are chains inside a node"
                    )
                below[above] = rank
        heads = [rank for rank in members if tree.parent[rank] not in members]
        if len(heads) > 1:
            raise ExportError(
                f"{where}: ranks {heads[0]} and {heads[1]} of node {node} have their parents on"
                " other nodes; NCCL's trees enter a node once"
            )
        chain = [heads[0]]
        while chain[-1] in below:
            chain.append(below[chain[-1]])
        chains.append(tuple(chain))
    return tuple(chains)
