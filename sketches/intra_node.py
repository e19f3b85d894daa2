"""Edges inside a node: NVLink, xGMI and NVSwitch where they are, PCIe where it is needed.

GPU pairs with a direct link or an NVSwitch between them use it. Of the other pairs, those that
NVLink (or xGMI) connects through other GPUs are dropped: a relay over two NVLinks is several times
faster than PCIe and leaves the PCIe uplinks to the NICs. Pairs that NVLink does not connect go over
PCIe and share its uplinks as ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import networkx as nx

from probes.paths import local_path
from probes.topology import DeviceKind, Link, LinkKind, Topology
from sketches.sketch import DroppedEdge, PruningStage
from sketches.wires import Wire, wire

_FABRIC = frozenset({LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C})


def intra_node_wires(
    topology: Topology, *, every_pcie_pair: bool = False
) -> tuple[tuple[Wire, ...], tuple[DroppedEdge, ...]]:
    """Edges between GPUs of one node.

    Args:
        topology: The machine.
        every_pcie_pair: Keep PCIe also between GPUs that NVLink connects through others.

    Returns:
        The wires, and the pairs that got none.
    """
    wires: list[Wire] = []
    dropped: list[DroppedEdge] = []
    for ranks in _ranks_by_node(topology):
        fabric = {
            (src, dst): links
            for src in ranks
            for dst in ranks
            if src != dst and (links := _fabric_links(topology, src, dst))
        }
        island = _islands(ranks, fabric)
        for src, dst in ((src, dst) for src in ranks for dst in ranks if src != dst):
            a, b = topology.gpus[src].name, topology.gpus[dst].name
            links = fabric.get((src, dst))
            if links is None:
                path = local_path(topology, a, b)
                if path is None:
                    reason = "no way between them inside the node"
                elif island[src] == island[dst] and not every_pcie_pair:
                    reason = "PCIe only: GPUs linked to both relay faster than PCIe carries"
                else:
                    links = path.links
            if links is None:
                dropped.append(DroppedEdge(a, b, PruningStage.INTRA_NODE, reason))
            else:
                wires.append(wire(topology, src, dst, links))
    return tuple(wires), tuple(dropped)


def _ranks_by_node(topology: Topology) -> Iterator[list[int]]:
    nodes: dict[int, list[int]] = defaultdict(list)
    for rank, node in enumerate(topology.node_of_rank):
        nodes[node].append(rank)
    return iter(nodes.values())


def _fabric_links(topology: Topology, src: int, dst: int) -> tuple[Link, ...] | None:
    """Direct links as one, else the ways through all NVSwitches as one; None without either."""
    a, b = topology.gpus[src].name, topology.gpus[dst].name
    direct = [link for link in topology.links_between.get((a, b), ()) if link.kind in _FABRIC]
    if direct:
        return (_bundle(direct),)
    up = [link for link in topology.links_from[a] if _is_nvswitch(topology, link.dst)]
    down = [
        link
        for switch in dict.fromkeys(link.dst for link in up)
        for link in topology.links_between.get((switch, b), ())
    ]
    return (_bundle(up), _bundle(down)) if down else None


def _is_nvswitch(topology: Topology, name: str) -> bool:
    return topology.device[name].kind is DeviceKind.NVSWITCH


def _bundle(links: list[Link]) -> Link:
    """Parallel links as one: NVLink traffic of a pair spreads over all of them."""
    return replace(
        links[0],
        bandwidth_gb_per_s=sum(link.bandwidth_gb_per_s for link in links),
        latency_us=min(link.latency_us for link in links),
    )


def _islands(ranks: list[int], fabric: dict[tuple[int, int], tuple[Link, ...]]) -> dict[int, int]:
    """Number of the strongly connected part of the NVLink graph that a rank is in."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(ranks)
    graph.add_edges_from(fabric)
    parts = sorted(nx.strongly_connected_components(graph), key=min)
    return {rank: number for number, part in enumerate(parts) for rank in part}
