"""Groups of ports: subnets, racks, rails, and the networks that routing joins.

A subnet follows from the addresses. Subnets with ports of one host only (every port with a /31,
say) are pooled, as their ports reach others by routing only. Subnets of two or more hosts are
separate networks until a measurement between them succeeds. RDMA ports without an address belong
to the subnet of their GIDs, one per rail.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

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


@dataclass(frozen=True, slots=True, order=True)
class LinkClass:
    """Class of pairs that should have equal figures."""

    network: int
    distance: Distance
    line_rate_gb_per_s: float
    """Line rate of the slower port; 0 when unknown."""
    tool: str
    """The measuring tool, since TCP and RDMA are not comparable."""


@dataclass(frozen=True)
class PortGroups:
    """Ports, which are given by their index, and the groups of every port."""

    ports: tuple[NetworkPort, ...]
    subnets: tuple[str, ...]
    """Subnets; empty for a port that cannot be measured."""
    excluded: tuple[tuple[int, str], ...]
    """Ports that cannot be measured, with the reasons."""
    networks: tuple[int, ...]
    """Networks, from 0 in the order of the ports; `NO_NETWORK` for a port that cannot be
    measured."""

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """Racks; empty when unknown."""
        return tuple(port.rack for port in self.ports)

    @cached_property
    def in_order(self) -> tuple[int, ...]:
        """Ports by rail, rack, subnet and host: neighbours in this order are close."""
        ports, racks, subnets = self.ports, self.racks, self.subnets
        keys = [(p.nic, racks[i], subnets[i], p.host, i) for i, p in enumerate(ports)]
        return tuple(sorted(range(len(ports)), key=keys.__getitem__))

    def joined(self, reached: Iterable[PortPair]) -> PortGroups:
        """Join the networks of subnets between which a measurement succeeded."""
        return replace(self, networks=_joined(self.subnets, reached))

    def in_racks(self, rack_of_host: Mapping[int, str]) -> PortGroups:
        """Put the ports of hosts into racks."""
        ports = (replace(port, rack=rack_of_host.get(port.host, "")) for port in self.ports)
        return replace(self, ports=tuple(ports))

    def distance(self, pair: PortPair) -> Distance:
        """Return the distance between the ports of a pair in one network."""
        a, b = pair.client, pair.server
        same_rack = self.racks[a] == self.racks[b] and self.subnets[a] == self.subnets[b]
        if self.ports[a].nic == self.ports[b].nic:
            return Distance.SAME_RACK if same_rack else Distance.OTHER_RACK
        return Distance.OTHER_RAIL if same_rack else Distance.OTHER_RACK_AND_RAIL

    def in_one_network(self, pair: PortPair) -> bool:
        """Whether both ports of a pair are in the same network."""
        return self.networks[pair.client] == self.networks[pair.server] != NO_NETWORK

    def link_class(self, pair: PortPair, tool: str) -> LinkClass | None:
        """Return the class of a pair that `tool` measured; None between two networks."""
        if not self.in_one_network(pair):
            return None
        rate = min(self.ports[end].line_rate_gb_per_s for end in (pair.client, pair.server))
        return LinkClass(self.networks[pair.client], self.distance(pair), rate, tool)


def _joined(subnets: Sequence[str], reached: Iterable[PortPair]) -> tuple[int, ...]:
    import networkx as nx  # noqa: PLC0415 - only a campaign needs it

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(filter(None, subnets))
    ends = ((subnets[pair.client], subnets[pair.server]) for pair in reached)
    graph.add_edges_from((a, b) for a, b in ends if a and b)
    numbers = {
        subnet: number
        for number, members in enumerate(nx.connected_components(graph))
        for subnet in members
    }
    return tuple(numbers.get(subnet, NO_NETWORK) for subnet in subnets)


def group_ports(ports: Sequence[NetworkPort]) -> PortGroups:
    """Group ports by subnet and rack."""
    excluded: dict[int, str] = {}
    subnets = []
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
    named = ["" if index in excluded else subnet for index, subnet in enumerate(subnets)]
    pooled = tuple(_pooled(ports, named))
    return PortGroups(
        ports=tuple(ports),
        subnets=pooled,
        excluded=tuple(excluded.items()),
        networks=_joined(pooled, ()),
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
