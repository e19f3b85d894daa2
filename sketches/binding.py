"""Stage 1 of TuCCL's pruning: binding of every GPU to the nearest NIC of its node (section III-B).

Nearness is by the PCIe tree: first under a common switch, of nested switches the innermost; then
under the same CPU. NICs that are equally near to several GPUs are distributed among them in order,
so that each NIC gets equally many GPUs. Where the tree does not distinguish the NICs (virtual
machines that show every device on one root bus), they are distributed by index alone, and the
binding's reason says so.

NICs much slower than the node's fastest (management ports, container bridges) are left out. So are
NICs on a much narrower PCIe link than another equally near NIC (storage beside compute), because
their port speed may be unknown.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from probes.topology.graph import Device, LinkKind, Topology
from probes.topology.paths import Proximity, local_path, pcie_distance, pcie_hops
from sketches.sketch import Binding, DroppedEdge, PruningStage

SLOW_NIC_SHARE = 0.5
"""Least bandwidth of a NIC in use, as a share of its node's fastest."""

_Distance = tuple[Proximity, int]
"""Proximity, then the number of links if both are under one PCIe switch."""

_NEARNESS = {
    Proximity.SWITCH: "under the same PCIe switch",
    Proximity.HOST_BRIDGE: "under the same CPU",
    Proximity.SOCKETS: "across sockets, for want of a nearer one",
}


def bind_gpus(topology: Topology) -> tuple[tuple[Binding, ...], tuple[DroppedEdge, ...]]:
    """Bind every rank to one NIC of its node; ranks of a node without a NIC get no binding.

    Returns:
        The bindings in rank order, and the unused connections from GPUs to NICs.
    """
    bindings: list[Binding] = []
    dropped: list[DroppedEdge] = []
    for ranks, nics in ranks_and_nics_by_node(topology):
        if nics:
            fast = fast_nics(topology, nics)
            bound = _bind_node(topology, ranks, fast)
            bindings += bound
            dropped += _unused(topology, bound, nics, fast)
    return tuple(bindings), tuple(dropped)


def borrowed_nics(topology: Topology) -> tuple[Binding, ...]:
    """Return all NICs that a GPU without one of its own may use instead, as further bindings.

    Other GPUs are nearer to each of them, so none is its own more than another.
    """
    found = []
    for ranks, nics in ranks_and_nics_by_node(topology):
        sharers = nearest_nics(topology, ranks, fast_nics(topology, nics)) if nics else {}
        users = Counter(nic for names in sharers for nic in names)
        for names, group in sharers.items():
            if len(names) > len(group) and all(users[nic] > 1 for nic in names):
                why = (
                    f"borrowed: {len(names)} NICs are equally near, and other GPUs are nearer to"
                    " each of them"
                )
                found += [Binding(rank, nic, why) for rank in group for nic in names]
    return tuple(found)


def ranks_and_nics_by_node(topology: Topology) -> list[tuple[list[int], list[Device]]]:
    """Return the ranks and NICs of every node that has GPUs."""
    ranks: dict[int, list[int]] = defaultdict(list)
    nics: dict[int, list[Device]] = defaultdict(list)
    for rank, gpu in enumerate(topology.gpus):
        ranks[gpu.node].append(rank)
    for nic in topology.nics:
        nics[nic.node].append(nic)
    return [(ranks[node], nics[node]) for node in sorted(ranks)]


def nic_gb_per_s(topology: Topology, nic: str, *, receiving: bool = False) -> float:
    """Return a NIC's bandwidth into the network, or from it.

    It is the sum of its links up to the line rate, but at least that of its widest link; without
    links it is the line rate. 0: unknown.
    """
    links = topology.links_to[nic] if receiving else topology.links_from[nic]
    rates = [link.bandwidth_gb_per_s for link in links if link.kind is LinkKind.NETWORK]
    line_rate = topology.device[nic].line_rate_gb_per_s
    return max(*rates, min(sum(rates), line_rate)) if rates else line_rate


def host_gb_per_s(topology: Topology, nic: str, *, receiving: bool = False) -> float:
    """Return the sum of a NIC's links from its host, or to it; infinite without links."""
    links = topology.links_from[nic] if receiving else topology.links_to[nic]
    rates = [link.bandwidth_gb_per_s for link in links if link.kind is not LinkKind.NETWORK]
    return sum(rates) if rates else math.inf


def fast_nics(topology: Topology, nics: Sequence[Device]) -> list[Device]:
    """Return a node's NICs that are in the network and not much slower than the fastest."""
    nics = [nic for nic in nics if _is_linked(topology, nic)] or nics
    bandwidth = {nic.name: nic_gb_per_s(topology, nic.name) for nic in nics}
    least = SLOW_NIC_SHARE * max(bandwidth.values())
    return [nic for nic in nics if bandwidth[nic.name] >= least]


def _is_linked(topology: Topology, nic: Device) -> bool:
    """Return whether a NIC can both send and receive, which a bound rank needs."""
    return all(
        any(link.kind is LinkKind.NETWORK for link in links)
        for links in (topology.links_from[nic.name], topology.links_to[nic.name])
    )


def nearest_nics(
    topology: Topology, ranks: Sequence[int], nics: Sequence[Device]
) -> dict[tuple[str, ...], list[int]]:
    """Return the ranks of one node by their nearest NICs, without much narrower ones."""
    sharers: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, row in _distances(topology, ranks, nics).items():
        pairs = zip(nics, row, strict=True)
        near = [nic.name for nic, distance in pairs if distance == min(row)]
        sharers[_wide(topology, topology.gpus[rank].name, near)].append(rank)
    return sharers


def _wide(topology: Topology, gpu: str, nics: Sequence[str]) -> tuple[str, ...]:
    """Return the NICs that a GPU reaches with more than half of the best bandwidth.

    Two GPUs that share a NIC of full bandwidth do no worse than with a half-width NIC each.
    """
    paths = {nic: local_path(topology, gpu, nic) for nic in nics}
    width = {nic: path.bandwidth_gb_per_s if path else 0.0 for nic, path in paths.items()}
    most = max(width.values())
    return tuple(nic for nic in nics if width[nic] > SLOW_NIC_SHARE * most or not most)


def _distances(
    topology: Topology, ranks: Sequence[int], nics: Sequence[Device]
) -> dict[int, list[_Distance]]:
    return {
        rank: [_distance(topology, topology.gpus[rank].name, nic.name) for nic in nics]
        for rank in ranks
    }


def _distance(topology: Topology, gpu: str, nic: str) -> _Distance:
    near = pcie_distance(topology, gpu, nic)
    # Beyond the switches all paths share the CPU, so a NIC's depth is no reason to bind all GPUs
    # to the shallowest.
    hops = pcie_hops(topology, gpu, nic) if near is Proximity.SWITCH else None
    return near, hops or 0


def _bind_node(topology: Topology, ranks: Sequence[int], nics: Sequence[Device]) -> list[Binding]:
    distance = _distances(topology, ranks, nics)
    proximities = {near for row in distance.values() for near, _ in row}
    ambiguous = len(nics) > 1 and len(proximities) == 1 and proximities != {Proximity.SWITCH}
    sharers = nearest_nics(topology, ranks, nics)
    bindings = []
    for names, group in sharers.items():
        for position, rank in enumerate(group):
            near, _ = min(distance[rank])
            if ambiguous or near is Proximity.UNKNOWN:
                reason = (
                    "by index, because the PCIe tree does not distinguish the NICs: "
                    f"GPU {position} of {len(group)} takes NIC "
                    f"{position} * {len(names)} // {len(group)}"
                )
            else:
                reason = _NEARNESS[near]
                if len(names) > 1:
                    reason += (
                        f"; {len(names)} NICs are equally near and shared out among "
                        f"{len(group)} GPUs in order"
                    )
            nic = names[position * len(names) // len(group)]
            bindings.append(Binding(rank, nic, reason))
    return sorted(bindings, key=lambda binding: binding.rank)


def _unused(
    topology: Topology, bound: Sequence[Binding], nics: Sequence[Device], fast: Sequence[Device]
) -> list[DroppedEdge]:
    usable = {nic.name for nic in fast}
    unused = []
    for binding in bound:
        gpu = topology.gpus[binding.rank].name
        for nic in nics:
            if nic.name == binding.nic:
                continue
            if nic.name not in usable:
                reason = (
                    f"the NIC has no link into the network, or less than {SLOW_NIC_SHARE:.0%} of "
                    f"the bandwidth of the fastest"
                )
            else:
                reason = f"the GPU is bound to another NIC: {binding.reason}"
            unused.append(DroppedEdge(gpu, nic.name, PruningStage.BINDING, reason))
    return unused
