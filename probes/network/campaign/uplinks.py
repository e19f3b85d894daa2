"""Ports of a host that share a PCIe link too narrow for all of them.

Measured at once, each would show its part of the link and pass for slow, so they take turns
(`shared_uplinks` finds them, `probes.network.campaign.sampling.schedule` keeps them apart). What
they do together is asked once for every kind of host, between two hosts: `plan_together`,
`together_notes`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterable, Sequence

from probes.network.campaign.sampling import Budget
from probes.network.port_groups import NO_NETWORK
from probes.network.ports import NetworkPort
from probes.network.results import PairResult, PortPair
from probes.pci.address import slot_of
from probes.topology.figure_text import three_digits
from probes.topology.graph import DeviceKind, Link, LinkKind, Topology
from probes.topology.hosts import folded

_FALLS_SHORT = 0.85
"""Together less than this share of what they do alone: the link limits them."""
_ALIKE = 0.05

Conflicts = Sequence[Sequence[int]]
"""Places of ports that cannot be measured at once; no port in two of the groups."""


def shared_uplinks(topology: Topology, ports: Sequence[NetworkPort]) -> tuple[tuple[int, ...], ...]:
    """Ports whose line rates exceed a PCIe link that all of them need, by their places.

    Args:
        topology: the hosts, NICs named `n{host}/nic{nic}`.
        ports: all ports of the cluster.
    """
    members: dict[tuple[str, str], list[int]] = {}
    widths: dict[tuple[str, str], float] = {}
    for place, port in enumerate(ports):
        for link in _links_up(topology, f"n{port.host}/nic{port.nic}"):
            nic = topology.device[link.src]
            # The ports of a card are NICs of their own, and have the card's link in common.
            is_card = nic.kind is DeviceKind.NIC and nic.bus_id
            start = f"n{nic.node}/{slot_of(nic.bus_id)}" if is_card else link.src
            members.setdefault((start, link.dst), []).append(place)
            widths[start, link.dst] = link.bandwidth_gb_per_s
    narrow = [
        places
        for key, places in members.items()
        if len(places) > 1 and sum(ports[i].line_rate_gb_per_s for i in places) > widths[key]
    ]
    return tuple(sorted(tuple(sorted(group)) for group in _merged(narrow)))


def _links_up(topology: Topology, nic: str) -> tuple[Link, ...]:
    """PCIe links from a NIC to the nearest CPU; none where it hangs at no CPU."""
    ways: list[tuple[str, tuple[Link, ...]]] = [(nic, ())]
    seen = {nic}
    for here, way in ways:
        for link in topology.links_from.get(here, ()):
            if link.kind is not LinkKind.PCIE or link.dst in seen:
                continue
            kind = topology.device[link.dst].kind
            if kind is DeviceKind.CPU:
                return (*way, link)
            if kind is DeviceKind.PCIE_SWITCH:
                seen.add(link.dst)
                ways.append((link.dst, (*way, link)))
    return ()


def _merged(groups: Iterable[Collection[int]]) -> list[set[int]]:
    """Groups without a common member, by joining those that have one."""
    group_of: dict[int, set[int]] = {}
    for group in groups:
        joined = set(group).union(*(group_of.get(place, ()) for place in group))
        group_of.update(dict.fromkeys(joined, joined))
    return list({id(group): group for group in group_of.values()}.values())


def plan_together(
    ports: Sequence[NetworkPort],
    networks: Sequence[int],
    conflicts: Conflicts,
    budget: Budget,
    suspected: Collection[int],
) -> list[PortPair]:
    """One round in which ports that share an uplink send at once, a pair of hosts for each kind.

    Hosts are of one kind where NICs of the same index and line rate share an uplink. Only ports
    that are fine and have room in the budget take part.
    """
    kinds: dict[tuple[tuple[int, float], ...], list[Sequence[int]]] = {}
    for group in conflicts:
        kind = tuple((ports[place].nic, ports[place].line_rate_gb_per_s) for place in group)
        if not any(place in suspected for place in group):
            kinds.setdefault(kind, []).append(group)
    chosen: list[PortPair] = []
    for groups in kinds.values():
        for clients, servers in itertools.pairwise(groups):
            pairs = [PortPair(*ends) for ends in zip(clients, servers, strict=True)]
            reached = all(
                networks[pair.client] == networks[pair.server] != NO_NETWORK for pair in pairs
            )
            if reached and all(map(budget.allows, pairs)):
                chosen += pairs
                break
    return chosen


def together_notes(
    ports: Sequence[NetworkPort],
    conflicts: Conflicts,
    alone: Sequence[PairResult],
    together: Sequence[PairResult],
) -> list[str]:
    """A sentence for every group that does less together than its ports do alone."""
    by_port: dict[int, list[float]] = {}
    for result in alone:
        if result.bandwidth_gb_per_s is not None:
            by_port.setdefault(result.pair.client, []).append(result.bandwidth_gb_per_s)
    did = {result.pair.client: result for result in together}
    notes = []
    for group in conflicts:
        totals = [did[place].bandwidth_gb_per_s for place in group if place in did]
        figures = [statistics.median(by_port[place]) for place in group if place in by_port]
        known = [total for total in totals if total is not None]
        if len(known) < len(group) or len(figures) < len(group):
            continue
        if sum(known) >= _FALLS_SHORT * sum(figures):
            continue
        clients = [ports[place] for place in group]
        peer = ports[did[group[0]].pair.server].host_name
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
