"""Groups of ports: subnets, racks, rails, and the networks that routing joins.

A subnet follows from the addresses. Subnets with ports of one host only (every port with a /31,
say) are pooled, as their ports reach others by routing only. Subnets of two or more hosts are
separate networks until a measurement between them succeeds. RDMA ports without an address belong
to the subnet of their GIDs, one per rail.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from probes.network.ports import NetworkPort, PortPair

NO_NETWORK = -1


class Distance(StrEnum):
    """Distance between two ports of one network."""

    SAME_RACK = "same rack"
    """NICs of one index, in one rack or with unknown racks."""
    OTHER_RACK = "other rack"
    """NICs of one index, in two racks or two subnets of a routed network."""
    OTHER_RAIL = "other rail"
    """NICs of different index in one rack."""
    OTHER_RACK_AND_RAIL = "other rack and rail"


@dataclass(frozen=True, slots=True)
class PortGroups:
    """Groups of every port, by its index in the list of ports."""

    subnets: tuple[str, ...]
    """Subnets; empty for a port that cannot be measured."""
    racks: tuple[str, ...]
    """Racks; empty when unknown."""
    excluded: tuple[tuple[int, str], ...]
    """Ports that cannot be measured, with the reasons."""


@dataclass(frozen=True, slots=True, order=True)
class LinkClass:
    """Class of pairs that should have equal figures."""

    network: int
    distance: Distance
    line_rate_gb_per_s: float
    """Line rate of the slower port; 0 when unknown."""
    tool: str
    """The measuring tool, since TCP and RDMA are not comparable."""


def group_ports(ports: Sequence[NetworkPort], rack_prefix_length: int = 0) -> PortGroups:
    """Group ports by subnet and rack.

    If a port's rack is not known, the first `rack_prefix_length` bits of its address identify it;
    0 for none.
    """
    excluded: dict[int, str] = {}
    subnets, racks = [], []
    owner: dict[str, int] = {}
    hosts_at: dict[str, dict[int, str]] = {}
    for port in ports:
        hosts_at.setdefault(port.management_address, {})[port.host] = port.host_name
    for index, port in enumerate(ports):
        interface = _interface(port)
        if port.is_rdma_only:
            if owner_name := _host_of_same_address(port, hosts_at):
                shared = f"its host's {port.management_address} is an address of {owner_name}"
                excluded[index] = f"{shared}, too, and it has none of its own"
        elif interface is None:
            excluded[index] = f"address {port.address!a} cannot be read" if port.address else ""
        elif (first := owner.setdefault(str(interface.ip), index)) != index:
            excluded[index] = f"{interface.ip} is the address of {ports[first].label}, too"
            if ports[first].host != port.host:
                excluded[first] = f"{interface.ip} is the address of {port.label}, too"
        subnets.append(_subnet(interface, port))
        by_prefix = ""
        if interface is not None and rack_prefix_length:
            bits = min(rack_prefix_length, interface.max_prefixlen)
            by_prefix = str(ipaddress.ip_network((interface.ip, bits), strict=False))
        racks.append(port.rack or by_prefix)
    named = ["" if index in excluded else subnet for index, subnet in enumerate(subnets)]
    return PortGroups(
        subnets=tuple(_pooled(ports, named)), racks=tuple(racks), excluded=tuple(excluded.items())
    )


def _host_of_same_address(port: NetworkPort, hosts_at: Mapping[str, Mapping[int, str]]) -> str:
    """Name of another host with the same management address; empty without one."""
    names = (name for host, name in hosts_at[port.management_address].items() if host != port.host)
    return next(names, "")


def _subnet(
    interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface | None, port: NetworkPort
) -> str:
    # Every link has the same link-local subnet, so only a measurement shows whether rails connect.
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
    """Return the subnets, with IP subnets of a single host pooled per IP version."""
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
    """Return the network of every port, joining subnets between which a measurement succeeded.

    Returns:
        Numbers from 0 in the order of the ports; `NO_NETWORK` for a port that cannot be measured.
    """
    joined = {subnet: subnet for subnet in groups.subnets}

    def root(subnet: str) -> str:
        while joined[subnet] != subnet:
            joined[subnet] = subnet = joined[joined[subnet]]
        return subnet

    for pair in reached:
        a, b = root(groups.subnets[pair.client]), root(groups.subnets[pair.server])
        if a and b:
            joined[max(a, b)] = min(a, b)
    numbers: dict[str, int] = {}
    return tuple(
        numbers.setdefault(root(subnet), len(numbers)) if subnet else NO_NETWORK
        for subnet in groups.subnets
    )


def distance(ports: Sequence[NetworkPort], groups: PortGroups, pair: PortPair) -> Distance:
    """Return the distance between the ports of a pair in one network."""
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
    """Return the class of a measured pair; None between two networks."""
    network = networks[pair.client]
    if network != networks[pair.server] or network == NO_NETWORK:
        return None
    rates = (ports[pair.client].line_rate_gb_per_s, ports[pair.server].line_rate_gb_per_s)
    return LinkClass(network, distance(ports, groups, pair), min(rates), tool)
