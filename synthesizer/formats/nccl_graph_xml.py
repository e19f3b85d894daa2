"""NCCL graph files (`NCCL_GRAPH_FILE`): a schedule's rings or trees for stock NCCL.

Elements and attributes are those of NCCL 2.30 (src/graph/search.cc, src/graph/xml.cc). GPUs and
NICs are named by `dev`, in hexadecimal, which NCCL looks up on its own host; `rank`, which would
bind the file to one node, is left out, so a file serves every node with the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from synthesizer.experts.nccl_trees import Pattern
from synthesizer.formats.nccl_graph_channels import GraphChannel, nccl_channels
from synthesizer.formats.nccl_graph_figures import GraphFigures, GraphMachine, graph_figures
from synthesizer.ir.algorithm import Algorithm
from tuccl.errors import FormatError

MAX_CHANNELS = 32
"""Most channels of a graph: half of NCCL's MAXCHANNELS, because NCCL doubles them."""

_CHANNEL_GB_PER_S = 25.0
"""Bandwidth from which NCCL 2.30's own search doubles the channels (ncclTopoDupChannels)."""
_RING_ID, _TREE_ID = 0, 1


def nccl_graph_files(algorithm: Algorithm, machine: GraphMachine) -> tuple[str, ...]:
    """Return the graph files of a schedule: one if it serves all nodes, else one per node.

    Args:
        algorithm: A schedule of rings, or one of trees.
        machine: The machine that it was made for.

    Raises:
        FormatError: NCCL cannot run a channel of the schedule.
    """
    graph = _graph(algorithm, machine)
    cross_nic = _cross_nic(graph)
    if cross_nic is not None:
        return (_text(graph, 0, cross_nic),)
    return tuple(_text(graph, node, cross_nic=0) for node in range(len(graph.local)))


@dataclass(frozen=True, slots=True)
class _LocalChannel:
    """A channel on one node: indices of its GPUs, and of the NICs at both ends."""

    gpus: tuple[int, ...]
    nics: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Graph:
    pattern: Pattern
    local: tuple[tuple[_LocalChannel, ...], ...]
    """Channels of each node."""
    figures: GraphFigures


def _graph(algorithm: Algorithm, machine: GraphMachine) -> _Graph:
    """Return the graph with as many copies of each channel as the links need.

    A channel is one threadblock, which moves a few tens of GB/s.
    """
    pattern, distinct = nccl_channels(algorithm, machine.node_of_rank)
    nodes = len(distinct[0].chains)
    hops = [hop for channel in distinct for hop in channel.hops]
    weight = 0.5 if pattern is not Pattern.RING and nodes > 1 else 1.0
    if len(distinct) > MAX_CHANNELS:
        raise FormatError(
            f"{algorithm.name}: {len(distinct)} channels; NCCL takes at most {MAX_CHANNELS}"
        )
    copies = _needed_copies(graph_figures(machine, hops, weight), len(distinct))
    local = tuple(
        tuple(_local_channel(machine, pattern, channel, node) for channel in distinct) * copies
        for node in range(nodes)
    )
    return _Graph(pattern, local, graph_figures(machine, hops * copies, weight))


def _needed_copies(figures: GraphFigures, channels: int) -> int:
    """Return the copies that keep each channel below the rate at which NCCL doubles it."""
    rate = min(figures.speed_intra_gb_per_s, figures.speed_inter_gb_per_s)
    return max(1, min(ceil(rate / _CHANNEL_GB_PER_S), MAX_CHANNELS // channels))


def _text(graph: _Graph, node: int, cross_nic: int) -> str:
    channels, figures = graph.local[node], graph.figures
    same = len({channel.gpus for channel in channels}) == 1
    head = (
        f'  <graph id="{_RING_ID if graph.pattern is Pattern.RING else _TREE_ID}"'
        f' pattern="{graph.pattern:d}"'
        f' crossnic="{cross_nic}" nchannels="{len(channels)}"'
        f' speedintra="{figures.speed_intra_gb_per_s:g}"'
        f' speedinter="{figures.speed_inter_gb_per_s:g}" latencyinter="0"'
        f' typeintra="{figures.type_intra}" typeinter="{figures.type_inter}"'
        f' samechannels="{same:d}">'
    )
    body = [line for channel in channels for line in _channel_lines(channel)]
    return "\n".join(['<graphs version="1">', head, *body, "  </graph>", "</graphs>\n"])


def _local_channel(
    machine: GraphMachine, pattern: Pattern, channel: GraphChannel, node: int
) -> _LocalChannel:
    chain = channel.chains[node]
    gpus = tuple(machine.gpu_of_rank[rank] for rank in chain)
    if len(channel.chains) == 1:
        return _LocalChannel(gpus, None)
    # NCCL takes the first NIC for the chain's first rank, the second for the other rank that
    # crosses.
    second = {Pattern.RING: chain[-1], Pattern.TREE: chain[0]}.get(pattern, chain[:2][-1])
    return _LocalChannel(gpus, (machine.nic(chain[0]), machine.nic(second)))


def _cross_nic(graph: _Graph) -> int | None:
    """Return the `crossnic` with which the first node's file serves all nodes, or None.

    With 2, NCCL swaps channels 0 and 1, 2 and 3, ... of rings on every second node.
    """
    first = graph.local[0]
    if all(channels == first for channels in graph.local):
        return 0
    if graph.pattern is Pattern.RING and len(first) % 2 == 0:
        exchanged = tuple(first[number ^ 1] for number in range(len(first)))
        if all(c == (exchanged if n % 2 else first) for n, c in enumerate(graph.local)):
            return 2
    return None


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
    """Format a number as C's `%#x`."""
    return f"{number:#x}" if number else "0"
