"""Ports of a host that share a PCIe link too narrow for all of them.

Measured at once, each would show its share of the link and appear slow, so they are measured in
different rounds (`shared_uplinks` finds them, `probes.network.campaign.sampling.schedule`
separates them). They are measured together once for every kind of host, between two hosts:
`plan_together`, `together_notes`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Sequence

import networkx as nx

from probes.network.campaign.sampling import Budget
from probes.network.port_groups import PortGroups
from probes.network.ports import NetworkPort, PairResult, PortPair
from probes.pci.address import slot_of
from probes.topology.figure_text import three_digits
from probes.topology.graph import DeviceKind, Link, LinkKind, Topology
from probes.topology.hosts import folded

FALLS_SHORT = 0.85
"""Bandwidth together over the sum alone, below which the link is the limit."""
_ALIKE = 0.05

Conflicts = Sequence[Sequence[int]]
"""Disjoint groups of ports, by index, that cannot be measured at once."""


def shared_uplinks(topology: Topology, ports: Sequence[NetworkPort]) -> tuple[tuple[int, ...], ...]:
    """Return groups of ports, by index, whose line rates exceed a PCIe link that they share.

    The topology has the hosts, with NICs named `n{host}/nic{nic}`.
    """
    members: dict[tuple[str, str], list[int]] = {}
    widths: dict[tuple[str, str], float] = {}
    for index, port in enumerate(ports):
        for link in _links_up(topology, f"n{port.host}/nic{port.nic}"):
            nic = topology.device[link.src]
            # The ports of a card are separate NICs that share the card's link.
            is_card = nic.kind is DeviceKind.NIC and nic.bus_id
            start = f"n{nic.node}/{slot_of(nic.bus_id)}" if is_card else link.src
            members.setdefault((start, link.dst), []).append(index)
            widths[start, link.dst] = link.bandwidth_gb_per_s
    narrow = [
        indices
        for key, indices in members.items()
        if len(indices) > 1 and sum(ports[i].line_rate_gb_per_s for i in indices) > widths[key]
    ]
    # Groups with a common member are one.
    shared: nx.Graph[int] = nx.Graph()
    for indices in narrow:
        nx.add_path(shared, indices)
    return tuple(sorted(tuple(sorted(group)) for group in nx.connected_components(shared)))


def _links_up(topology: Topology, nic: str) -> tuple[Link, ...]:
    """Return the PCIe links from a NIC to the nearest CPU; none if no CPU is reached."""
    paths: list[tuple[str, tuple[Link, ...]]] = [(nic, ())]
    seen = {nic}
    for name, path in paths:
        for link in topology.links_from.get(name, ()):
            if link.kind is not LinkKind.PCIE or link.dst in seen:
                continue
            kind = topology.device[link.dst].kind
            if kind is DeviceKind.CPU:
                return (*path, link)
            if kind is DeviceKind.PCIE_SWITCH:
                seen.add(link.dst)
                paths.append((link.dst, (*path, link)))
    return ()


def plan_together(
    groups: PortGroups, conflicts: Conflicts, budget: Budget, suspected: Collection[int]
) -> list[PortPair]:
    """Plan a round in which ports that share an uplink send at once, with two hosts of each kind.

    Hosts are of one kind if NICs of the same index and line rate share an uplink. Suspects and
    ports without budget are left out.
    """
    ports = groups.ports
    kinds: dict[tuple[tuple[int, float], ...], list[Sequence[int]]] = {}
    for group in conflicts:
        kind = tuple((ports[index].nic, ports[index].line_rate_gb_per_s) for index in group)
        if not any(index in suspected for index in group):
            kinds.setdefault(kind, []).append(group)
    planned: list[PortPair] = []
    for members in kinds.values():
        for clients, servers in itertools.pairwise(members):
            pairs = [PortPair(*ends) for ends in zip(clients, servers, strict=True)]
            if all(groups.in_one_network(pair) and budget.allows(pair) for pair in pairs):
                planned += pairs
                break
    return planned


def together_notes(
    ports: Sequence[NetworkPort],
    conflicts: Conflicts,
    alone: Sequence[PairResult],
    together: Sequence[PairResult],
) -> list[str]:
    """Return a sentence for every group whose ports are slower together than alone."""
    by_port: dict[int, list[float]] = {}
    for result in alone:
        if result.bandwidth_gb_per_s is not None:
            by_port.setdefault(result.pair.client, []).append(result.bandwidth_gb_per_s)
    result_of = {result.pair.client: result for result in together}
    notes = []
    for group in conflicts:
        totals = [result_of[index].bandwidth_gb_per_s for index in group if index in result_of]
        figures = [statistics.median(by_port[index]) for index in group if index in by_port]
        known = [total for total in totals if total is not None]
        if len(known) < len(group) or len(figures) < len(group):
            continue
        if sum(known) >= FALLS_SHORT * sum(figures):
            continue
        clients = [ports[index] for index in group]
        peer = ports[result_of[group[0]].pair.server].host_name
        notes.append(
            f"{_and([port.os_name for port in clients])} together do {three_digits(sum(known))} "
            f"GB/s, alone {_each(figures)}: they share an uplink (measured from "
            f"{clients[0].host_name} to {peer}, for all hosts whose NICs share links alike)."
        )
    return notes


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) == 2 else folded(names)


def _each(figures: Sequence[float]) -> str:
    middle = statistics.median(figures)
    if max(figures) - min(figures) <= _ALIKE * middle:
        return f"{three_digits(middle)} each"
    return " and ".join(map(three_digits, figures))
