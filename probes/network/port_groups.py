"""Which ports belong together: subnets, racks, rails, and the networks that routing joins.

A subnet is what the addresses say. A subnet with ports of one host only (every port with a /31 of
its own, say) tells nothing, so those are taken as one: whoever reaches anybody does so by routing.
Subnets of two hosts or more are networks of their own until a measurement crosses between them.
RDMA ports without an address belong to the subnet that their GIDs name, each rail for itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from probes.network.ports import NetworkPort
from probes.network.results import PortPair

NO_NETWORK = -1


class Distance(StrEnum):
    """How far two ports of one network are apart."""

    SAME_RACK = "same rack"
    """Or racks are not known; NICs of one index."""
    OTHER_RACK = "other rack"
    """Or another subnet of a routed network; NICs of one index."""
    OTHER_RAIL = "other rail"
    """NICs of different index in one rack."""
    OTHER_RACK_AND_RAIL = "other rack and rail"


@dataclass(frozen=True, slots=True)
class PortGroups:
    """What every port belongs to, by its place in the list of ports."""

    subnets: tuple[str, ...]
    """Empty for a port that cannot be measured."""
    racks: tuple[str, ...]
    """Empty when unknown."""
    excluded: tuple[tuple[int, str], ...]
    """Ports that cannot be measured, and why."""


@dataclass(frozen=True, slots=True, order=True)
class LinkClass:
    """Pairs that should do alike."""

    network: int
    distance: Distance
    line_rate_gb_per_s: float
    """Of the slower port; 0 when unknown."""
    tool: str
    """TCP and RDMA do not compare."""


def group_ports(ports: Sequence[NetworkPort], rack_prefix_length: int = 0) -> PortGroups:
    """Find subnets and racks.

    Args:
        ports: all ports of the cluster.
        rack_prefix_length: bits of the address that tell racks apart where a port's rack is not
            known otherwise; 0: addresses do not tell.
    """
    excluded: dict[int, str] = {}
    subnets, racks = [], []
    owner: dict[str, int] = {}
    hosts_at: dict[str, dict[int, str]] = {}
    for port in ports:
        hosts_at.setdefault(port.management_address, {})[port.host] = port.host_name
    for place, port in enumerate(ports):
        interface = _interface(port)
        if port.is_rdma_only:
            if rival := _rival(port, hosts_at):
                shared = f"its host's {port.management_address} is an address of {rival}"
                excluded[place] = f"{shared}, too, and it has none of its own"
        elif interface is None:
            excluded[place] = f"address {port.address!a} cannot be read" if port.address else ""
        elif (first := owner.setdefault(str(interface.ip), place)) != place:
            excluded[place] = f"{interface.ip} is the address of {ports[first].label}, too"
            if ports[first].host != port.host:
                excluded[first] = f"{interface.ip} is the address of {port.label}, too"
        subnets.append(_subnet(interface, port))
        by_prefix = ""
        if interface is not None and rack_prefix_length:
            bits = min(rack_prefix_length, interface.max_prefixlen)
            by_prefix = str(ipaddress.ip_network((interface.ip, bits), strict=False))
        racks.append(port.rack or by_prefix)
    named = ["" if place in excluded else subnet for place, subnet in enumerate(subnets)]
    return PortGroups(
        subnets=tuple(_pooled(ports, named)), racks=tuple(racks), excluded=tuple(excluded.items())
    )


def _rival(port: NetworkPort, hosts_at: Mapping[str, Mapping[int, str]]) -> str:
    """Name of another host with the same management address; empty without one."""
    others = (name for host, name in hosts_at[port.management_address].items() if host != port.host)
    return next(others, "")


def _subnet(
    interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface | None, port: NetworkPort
) -> str:
    # Every link has the same link-local subnet, so only a measurement tells whether rails are one.
    if port.is_rdma_only:
        return f"{port.rdma_subnet} of NIC {port.nic}"
    if interface is None:
        return ""
    rail = f" of NIC {port.nic}" if interface.is_link_local else ""
    return f"{interface.network}{rail}"


def _interface(port: NetworkPort) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    try:
        bits = port.prefix_length or ipaddress.ip_address(port.address).max_prefixlen
        return ipaddress.ip_interface(f"{port.address}/{bits}")
    except ValueError:
        return None


def _pooled(ports: Sequence[NetworkPort], subnets: Sequence[str]) -> list[str]:
    """Subnets, those of IP that only one host is in joined to one per IP version."""
    hosts: dict[str, set[int]] = {}
    for port, subnet in zip(ports, subnets, strict=True):
        hosts.setdefault(subnet, set()).add(port.host)
    return [
        subnet
        if not subnet or port.is_rdma_only or len(hosts[subnet]) > 1
        else f"routed IPv{6 if ':' in subnet else 4}"
        for port, subnet in zip(ports, subnets, strict=True)
    ]


def join_networks(groups: PortGroups, reached: Iterable[PortPair]) -> tuple[int, ...]:
    """Network of every port: subnets between which a measurement succeeded are one.

    Returns:
        Numbers from 0 in the order of the ports; `NO_NETWORK` for what cannot be measured.
    """
    joined = {subnet: subnet for subnet in groups.subnets}

    def root(subnet: str) -> str:
        while joined[subnet] != subnet:
            joined[subnet] = subnet = joined[joined[subnet]]
        return subnet

    for pair in reached:
        one, other = root(groups.subnets[pair.client]), root(groups.subnets[pair.server])
        if one and other:
            joined[max(one, other)] = min(one, other)
    numbers: dict[str, int] = {}
    return tuple(
        numbers.setdefault(root(subnet), len(numbers)) if subnet else NO_NETWORK
        for subnet in groups.subnets
    )


def distance(ports: Sequence[NetworkPort], groups: PortGroups, pair: PortPair) -> Distance:
    """How far the two ports of a pair in one network are apart."""
    a, b = pair.client, pair.server
    same_rack = groups.racks[a] == groups.racks[b] and groups.subnets[a] == groups.subnets[b]
    if ports[a].nic == ports[b].nic:
        return Distance.SAME_RACK if same_rack else Distance.OTHER_RACK
    return Distance.OTHER_RAIL if same_rack else Distance.OTHER_RACK_AND_RAIL


def link_class(
    ports: Sequence[NetworkPort],
    groups: PortGroups,
    networks: Sequence[int],
    pair: PortPair,
    tool: str,
) -> LinkClass | None:
    """Class of a measured pair; None between two networks."""
    network = networks[pair.client]
    if network != networks[pair.server] or network == NO_NETWORK:
        return None
    rates = (ports[pair.client].line_rate_gb_per_s, ports[pair.server].line_rate_gb_per_s)
    return LinkClass(network, distance(ports, groups, pair), min(rates), tool)
