"""Stage 3 of TuCCL's pruning: NIC connections become GPU connections (section III-B).

For two connected NICs, every GPU bound to the first gets an edge to every GPU bound to the second.
All these edges pass the same NIC ports and share their time as they use it. If a GPU's path to its
NIC is unknown, they also share one port of all links between the NIC and its host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import inf
from types import MappingProxyType

from probes.topology.graph import DeviceKind, Link, Topology
from probes.topology.paths import Path, local_path, network_path
from sketches.binding import host_gb_per_s, nic_gb_per_s
from sketches.grouping import NicGroup
from sketches.sketch import Binding, DroppedEdge, Port, PruningStage
from sketches.wires import PortsOfLinks, Wire, through_switches_gb_per_s, wire

MOST_SINGLE_ENTRIES = 2048
"""Most dropped GPU pairs with an entry each; above it there is one entry per node."""


def group_connections(groups: Iterable[NicGroup]) -> tuple[tuple[str, str], ...]:
    """Return the ordered NIC pairs within each group."""
    return tuple(dict.fromkeys(pair for group in groups for pair in permutations(group.nics, 2)))


def every_connection(topology: Topology, nics: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the ordered pairs of NICs on different nodes, unpruned."""
    node = {nic: topology.device[nic].node for nic in nics}
    return tuple((a, b) for a, b in permutations(node, 2) if node[a] != node[b])


def network_wires(
    topology: Topology, bindings: Sequence[Binding], connections: Iterable[tuple[str, str]]
) -> tuple[Wire, ...]:
    """Return the edges between GPUs of different nodes, for the NIC pairs in `connections`."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for binding in bindings:
        ranks[binding.nic].append(binding.rank)
    out: dict[tuple[int, str], Path | None] = {}
    back: dict[tuple[int, str], Path | None] = {}
    for binding in bindings:
        gpu, nic = topology.gpus[binding.rank].name, binding.nic
        out[binding.rank, nic] = local_path(topology, gpu, nic)
        back[binding.rank, nic] = local_path(topology, nic, gpu)
    into = {nic: _host_port(topology, nic) for (_, nic), path in out.items() if path is None}
    out_of = {
        nic: _host_port(topology, nic, receiving=True)
        for (_, nic), path in back.items()
        if path is None
    }
    wires: dict[tuple[int, int], Wire] = {}
    ports_of = PortsOfLinks(topology)
    at_nic_rate = _LinksAtNicRates(topology)
    for a, b in connections:
        between = network_path(topology, a, b)
        if between is None:
            continue
        shared = through_switches_gb_per_s(topology, a, b, DeviceKind.NETWORK_SWITCH)
        carried = max(between.bandwidth_gb_per_s, shared)
        network = at_nic_rate.links(between)
        first, last = into.get(a, ()), out_of.get(b, ())
        for src in ranks[a]:
            for dst in ranks[b]:
                links = (*_links(out[src, a]), *network, *_links(back[dst, b]))
                edge = wire(topology, src, dst, links, carried, ports_of, first, last)
                wires.setdefault((src, dst), edge)
    return tuple(wires.values())


def dropped_pairs(
    topology: Topology,
    wires: Iterable[Wire],
    stage: PruningStage,
    reason: str,
    congested: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> list[DroppedEdge]:
    """Return the GPU pairs of different nodes without a wire; many are counted per node.

    `congested` has the reasons of those that congestion scores removed, by ranks.
    """
    kept = {(wire.edge.src, wire.edge.dst) for wire in wires}
    node_of_rank = topology.node_of_rank
    ranks = len(node_of_rank)
    counts = [node_of_rank.count(node) for node in range(topology.node_count)]
    possible = [ranks - counts[node] for node in node_of_rank]
    if sum(possible) - len(kept) <= MOST_SINGLE_ENTRIES:
        return [
            DroppedEdge(
                topology.gpus[src].name,
                topology.gpus[dst].name,
                PruningStage.CONGESTION if (src, dst) in congested else stage,
                congested.get((src, dst), reason),
            )
            for src in range(ranks)
            for dst in range(ranks)
            if node_of_rank[src] != node_of_rank[dst] and (src, dst) not in kept
        ]
    missing: Counter[tuple[int, PruningStage, str]] = Counter()
    for src, node in enumerate(node_of_rank):
        missing[node, stage, reason] += possible[src]
    for src, _ in (*kept, *congested):
        missing[node_of_rank[src], stage, reason] -= 1
    for (src, _), why in congested.items():
        missing[node_of_rank[src], PruningStage.CONGESTION, why] += 1
    nodes = sorted({gpu.node for gpu in topology.gpus})
    return [
        DroppedEdge(
            f"GPUs of node {nodes[node]}", "GPUs of other nodes", by, f"{count} pairs: {why}"
        )
        for (node, by, why), count in missing.items()
        if count
    ]


class _LinksAtNicRates:
    """Links of NICs with the bandwidth of all links of the NIC, cached."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._out: dict[str, Link] = {}
        self._back: dict[str, Link] = {}

    def links(self, path: Path) -> tuple[Link, ...]:
        """Return a path's links, with the bandwidth of all NIC links at both ends."""
        if len(path.links) == 1:
            return path.links
        up, *between, down = path.links
        return (self._sending(up), *between, self._receiving(down))

    def _sending(self, link: Link) -> Link:
        known = self._out.get(link.src)
        if known is None or known.dst != link.dst:
            rate = nic_gb_per_s(self._topology, link.src)
            known = self._out[link.src] = replace(link, bandwidth_gb_per_s=rate)
        return known

    def _receiving(self, link: Link) -> Link:
        known = self._back.get(link.dst)
        if known is None or known.src != link.src:
            rate = nic_gb_per_s(self._topology, link.dst, receiving=True)
            known = self._back[link.dst] = replace(link, bandwidth_gb_per_s=rate)
        return known


def _links(path: Path | None) -> tuple[Link, ...]:
    """Return a path's links; none for an unknown path, which `_host_port` limits."""
    return () if path is None else path.links


def _host_port(topology: Topology, nic: str, *, receiving: bool = False) -> tuple[Port, ...]:
    """Return the port of all links from a host into its NIC, or back; none without links."""
    rate = host_gb_per_s(topology, nic, receiving=receiving)
    return () if rate == inf else (Port(f"{'from' if receiving else 'to'}:{nic}", rate),)
