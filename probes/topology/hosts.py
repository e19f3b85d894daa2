"""The nodes of a topology: their names, a topology of each, and groups of equal ones.

A node is a host, or an NVLink domain of several (`probes.topology.domains`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from probes.topology.bandwidth_class import bandwidth_class, limit_class, network_class
from probes.topology.graph import NETWORK_NODE, Device, Link, PairLimit, Topology


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Nodes of equal fingerprint."""

    nodes: tuple[int, ...]
    """Node indices, ascending."""
    example: Topology
    """The first node of the group."""

    @property
    def kind(self) -> str:
        """What it is: `host`, `2 hosts alike`, `NVLink domain of 2 hosts`."""
        count, hosts = len(self.nodes), self.example.host_count
        if hosts > 1:
            domains = f"{count:,} NVLink domains alike, each" if count > 1 else "NVLink domain"
            return f"{domains} of {hosts} hosts"
        return f"{count:,} hosts alike" if count > 1 else "host"


def host_name(topology: Topology, node: int) -> str:
    """The node's name; `n3` if the topology does not name node 3."""
    named = 0 <= node < len(topology.hosts) and topology.hosts[node]
    return topology.hosts[node] if named else f"n{node}"


def split_hosts(topology: Topology) -> dict[int, Topology]:
    """Return the topology of each node, in ascending order, without the network.

    Devices keep their names and nodes; the topology of a node has the node's name.
    """
    nodes = sorted({device.node for device in topology.devices} - {NETWORK_NODE})
    devices: dict[int, list[Device]] = {node: [] for node in nodes}
    links: dict[int, list[Link]] = {node: [] for node in nodes}
    limits: dict[int, list[PairLimit]] = {node: [] for node in nodes}
    for device in topology.devices:
        if device.node != NETWORK_NODE:
            devices[device.node].append(device)
    for link in topology.links:
        node = topology.device[link.src].node
        if node != NETWORK_NODE and node == topology.device[link.dst].node:
            links[node].append(link)
    for limit in topology.limits:
        limits[topology.device[limit.src].node].append(limit)
    return {
        node: Topology(
            name=host_name(topology, node) if len(nodes) > 1 else topology.name,
            devices=tuple(devices[node]),
            links=tuple(links[node]),
            notes=topology.notes if len(nodes) == 1 else (),
            hosts=topology.hosts if len(nodes) == 1 else (),
            limits=tuple(limits[node]),
        )
        for node in nodes
    }


def only_nodes(topology: Topology, nodes: Sequence[int]) -> Topology:
    """Return the topology without its other nodes, and without switches that join none of these.

    The figures stay as they are; nodes are numbered anew, in ascending order.
    """
    number = {node: new for new, node in enumerate(sorted(nodes))} | {NETWORK_NODE: NETWORK_NODE}
    there = {device.name for device in topology.devices if device.node in number}
    links = tuple(link for link in topology.links if {link.src, link.dst} <= there)
    joined = {name for link in links for name in (link.src, link.dst)}
    return replace(
        topology,
        devices=tuple(
            replace(device, node=number[device.node])
            for device in topology.devices
            if device.name in there and (device.node != NETWORK_NODE or device.name in joined)
        ),
        links=links,
        hosts=tuple(name for node, name in enumerate(topology.hosts) if node in number),
        limits=tuple(limit for limit in topology.limits if {limit.src, limit.dst} <= there),
    )


def hosts_alike(topology: Topology) -> tuple[HostGroup, ...]:
    """Group the nodes by fingerprint, in the order of the first node of each group."""
    hosts = split_hosts(topology)
    known: dict[tuple[object, ...], str] = {}
    groups: dict[str, list[int]] = {}
    for node, host in hosts.items():
        # Most of thousands of hosts are copies; only one of each is refined.
        key = _listing_key(host) if len(hosts) > 1 else ()
        if key not in known:
            known[key] = host.fingerprint()
        groups.setdefault(known[key], []).append(node)
    return tuple(HostGroup(tuple(nodes), hosts[nodes[0]]) for nodes in groups.values())


def _listing_key(host: Topology) -> tuple[object, ...]:
    """Key that is equal for hosts with the same list of devices, links and bandwidth classes."""
    position = {device.name: number for number, device in enumerate(host.devices)}
    return (
        tuple(
            (d.kind, d.index, d.model, d.compute_capability, network_class(d.line_rate_gb_per_s))
            for d in host.devices
        ),
        tuple(
            (position[link.src], position[link.dst], link.kind, link.lanes, bandwidth_class(link))
            for link in host.links
        ),
        tuple(
            (position[limit.src], position[limit.dst], limit_class(limit.bandwidth_gb_per_s))
            for limit in host.limits
        ),
    )


def folded(names: Iterable[str]) -> str:
    """Join names on one line, consecutive numbers as Slurm writes them: `node[01-16,20]`."""
    families: dict[tuple[str, str], list[str]] = {}
    for name in names:
        match = re.fullmatch(r"(.*?)([0-9]{1,18})([^0-9]*)", name)
        prefix, number, suffix = match.groups() if match else (name, "", "")
        families.setdefault((prefix, suffix), []).append(number)
    return ", ".join(
        f"{prefix}{_ranges(numbers)}{suffix}" for (prefix, suffix), numbers in families.items()
    )


def _ranges(numbers: Sequence[str]) -> str:
    """Join numbers as `[01-03,07]`; return a single number unchanged."""
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[str]] = []
    for number in sorted(filter(None, numbers), key=lambda text: (len(text), text)):
        last = runs[-1][-1] if runs else ""
        padded_alike = len(last) == len(number) or "0" not in (last[:1], number[0])
        if last and int(number) == int(last) + 1 and padded_alike:
            runs[-1].append(number)
        else:
            runs.append([number])
    return f"[{','.join(run[0] if len(run) == 1 else f'{run[0]}-{run[-1]}' for run in runs)}]"
