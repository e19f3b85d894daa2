"""Edges inside a node: NVLink, xGMI and NVSwitch where present, PCIe where needed.

GPU pairs with a direct link or an NVSwitch between them use it. Other pairs that NVLink (or xGMI)
connects through relays are dropped: a relay over two NVLinks is several times faster than PCIe and
leaves the PCIe uplinks to the NICs. Pairs that NVLink does not connect use PCIe and share its
uplinks as ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations

import networkx as nx

from probes.topology.graph import DeviceKind, Link, LinkKind, Topology
from probes.topology.paths import local_path
from sketches.sketch import DroppedEdge, PruningStage
from sketches.wires import Wire, through_switches_gb_per_s, wire

_FABRIC = frozenset({LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C})


def intra_node_wires(
    topology: Topology, *, every_pcie_pair: bool = False
) -> tuple[tuple[Wire, ...], tuple[DroppedEdge, ...]]:
    """Return the edges between GPUs of the same node.

    With `every_pcie_pair`, PCIe stays also between GPUs that NVLink connects through relays.

    Returns:
        The wires, and the dropped pairs.
    """
    wires: list[Wire] = []
    dropped: list[DroppedEdge] = []
    fabric_links = _Fabric(topology)
    for ranks in _ranks_by_node(topology):
        fabric = {
            (src, dst): route
            for src, dst in permutations(ranks, 2)
            if (route := fabric_links.route(src, dst)) is not None
        }
        island = _islands(ranks, fabric)
        for src, dst in permutations(ranks, 2):
            a, b = topology.gpus[src].name, topology.gpus[dst].name
            route = fabric.get((src, dst)) or _pcie_route(topology, a, b)
            if route is None:
                reason = "no way between them inside the node"
            elif (src, dst) in fabric or island[src] != island[dst] or every_pcie_pair:
                wires.append(wire(topology, src, dst, route.links, route.gb_per_s))
                continue
            else:
                reason = "PCIe only: GPUs linked to both relay faster than PCIe carries"
            dropped.append(DroppedEdge(a, b, PruningStage.INTRA_NODE, reason))
    return tuple(wires), tuple(dropped)


def _pcie_route(topology: Topology, src: str, dst: str) -> _Route | None:
    path = local_path(topology, src, dst)
    return None if path is None else _Route(path.links, path.bandwidth_gb_per_s)


def _ranks_by_node(topology: Topology) -> Iterator[list[int]]:
    nodes: dict[int, list[int]] = defaultdict(list)
    for rank, node in enumerate(topology.node_of_rank):
        nodes[node].append(rank)
    return iter(nodes.values())


@dataclass(frozen=True, slots=True)
class _Route:
    links: tuple[Link, ...]
    gb_per_s: float


class _Fabric:
    """NVLink, xGMI and C2C between GPUs of one node."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.up: dict[str, list[Link]] = defaultdict(list)
        self.down: dict[str, list[Link]] = defaultdict(list)
        for link in topology.links:
            if _is_nvswitch(topology, link.dst):
                self.up[link.src].append(link)
            if _is_nvswitch(topology, link.src):
                self.down[link.dst].append(link)

    def route(self, src: int, dst: int) -> _Route | None:
        """Return the merged direct links, else the merged routes through all NVSwitches, or None.

        A route through NVSwitches has all links of both GPUs: their bandwidth must not depend on
        the peer, because all edges of a GPU share them.
        """
        a, b = self.topology.gpus[src].name, self.topology.gpus[dst].name
        between = self.topology.links_between.get((a, b), ())
        direct = [link for link in between if link.kind in _FABRIC]
        if direct:
            bundle = _bundle(direct)
            return _Route((bundle,), bundle.bandwidth_gb_per_s)
        carried = through_switches_gb_per_s(self.topology, a, b, DeviceKind.NVSWITCH)
        return _Route((_bundle(self.up[a]), _bundle(self.down[b])), carried) if carried else None


def _is_nvswitch(topology: Topology, name: str) -> bool:
    return topology.device[name].kind is DeviceKind.NVSWITCH


def _bundle(links: list[Link]) -> Link:
    """Merge parallel links: NVLink traffic of a pair spreads over all of them."""
    return replace(
        links[0],
        bandwidth_gb_per_s=sum(link.bandwidth_gb_per_s for link in links),
        latency_us=min(link.latency_us for link in links),
    )


def _islands(ranks: list[int], fabric: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the number of each rank's strongly connected component of the NVLink graph."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(ranks)
    graph.add_edges_from(fabric)
    components = sorted(nx.strongly_connected_components(graph), key=min)
    return {rank: number for number, members in enumerate(components) for rank in members}
