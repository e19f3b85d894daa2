"""A cluster from one machine: N copies and the network between their NICs.

With rails, NIC i of every node is attached to network switch i, and rails are not connected to each
other; with one fabric, all NICs are attached to one switch. In racks, each of these switches is a
leaf per rack below a spine. Only the links between leaf and spine may be oversubscribed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from tuccl.errors import InvalidTopologyError, UnknownNicSpeedError


class NetworkLayout(StrEnum):
    """How the NICs of a cluster are connected."""

    RAILS = "rails"
    """NICs of the same index reach each other."""
    FABRIC = "fabric"
    """All NICs reach each other."""


@dataclass(frozen=True, slots=True)
class Network:
    """The network between the nodes."""

    latency_us: float
    """NIC to NIC; half of it on each side of the switch."""
    layout: NetworkLayout = NetworkLayout.RAILS
    bandwidth_gb_per_s: float | None = None
    """Per NIC and direction; None: the line rate of each NIC."""
    racks: tuple[int, ...] = ()
    """Number of nodes in each rack, in the order of the nodes; fewer than two: no racks."""
    oversubscription: float = 1.0
    """Bandwidth of a rack's NICs at a leaf switch over that of the leaf's link to the spine."""


def replicate(
    machine: Topology, nodes: int, network: Network, node_gpus: Sequence[int] | None = None
) -> Topology:
    """Put `nodes` copies of one host on a network; devices are named `n0/...`, `n1/...`, ...

    Each copy keeps its first `node_gpus` GPUs, or all if that is None. One node is the machine
    itself, unchanged.

    Raises:
        InvalidTopologyError: Fewer than one node, a machine of several hosts or without NICs,
            nodes of fewer GPUs than one or more than the machine has, or racks of other nodes.
        UnknownNicSpeedError: Neither the network nor a NIC states the NIC's speed.
    """
    if nodes < 1:
        raise InvalidTopologyError(f"{nodes} nodes of '{machine.name}'; give 1 or more")
    if node_gpus is not None:
        whole = replicate(machine, nodes, network)
        return _with_gpus(whole, node_gpus, len(machine.gpus))
    if nodes == 1:
        return machine
    _check_machine(machine, nodes)
    _check_network(network, nodes)
    port_gb_per_s = [_port_gb_per_s(nic, machine, network) for nic in machine.nics]
    rails = network.layout is NetworkLayout.RAILS
    switches = [f"rail{i}" if rails else "fabric" for i in range(len(machine.nics) if rails else 1)]
    rack_of_node = [rack for rack, size in enumerate(network.racks) for _ in range(size)]
    devices: list[Device] = []
    cables: list[Link] = []
    links: list[Link] = []
    for node in range(nodes):
        devices += [
            replace(device, name=_on_node(device.name, node), node=node)
            for device in machine.devices
        ]
        links += [
            replace(link, src=_on_node(link.src, node), dst=_on_node(link.dst, node))
            for link in machine.links
        ]
        for i, nic in enumerate(machine.nics):
            switch = switches[i if rails else 0]
            if len(network.racks) > 1:
                switch = f"{switch}-leaf{rack_of_node[node]}"
            provenance = Provenance.SPEC
            if network.bandwidth_gb_per_s is None:
                provenance = nic.line_rate_provenance
            name = _on_node(nic.name, node)
            cables += _cable(name, switch, port_gb_per_s[i], network.latency_us, provenance)
    if len(network.racks) > 1:
        cables += _uplinks(cables, network.oversubscription)
        levels = [*(f"leaf{rack}" for rack in range(len(network.racks))), "spine"]
        switches = [f"{switch}-{level}" for switch in switches for level in levels]
    return Topology(
        name=f"{nodes} x {machine.name}{_rack_text(network)}",
        devices=(
            *devices,
            *(
                Device(name, DeviceKind.NETWORK_SWITCH, NETWORK_NODE, i)
                for i, name in enumerate(switches)
            ),
        ),
        links=(*links, *cables),
        notes=machine.notes,
    )


def with_shared_gpus(machine: Topology, gpus: int) -> Topology:
    """Return a host that appears to have `gpus` GPUs: further ones are its own again, in turn.

    A GPU that appears again has the links of the real one, whose time and links both share.

    Raises:
        InvalidTopologyError: It has no GPU.
    """
    real = machine.gpus
    if not real:
        raise InvalidTopologyError(f"'{machine.name}' has no GPU that several ranks could share")
    devices, links = list(machine.devices), list(machine.links)
    for number in range(len(real), gpus):
        shared = real[number % len(real)]
        host = shared.name.rpartition("/")[0]
        name = f"{host}/gpu{number}" if host else f"gpu{number}"
        devices.append(replace(shared, name=name, index=number, bus_id=""))
        for link in machine.links:
            if shared.name in {link.src, link.dst}:
                src, dst = (name if end == shared.name else end for end in (link.src, link.dst))
                links.append(replace(link, src=src, dst=dst))
    return replace(machine, devices=tuple(devices), links=tuple(links))


def _with_gpus(cluster: Topology, node_gpus: Sequence[int], most: int) -> Topology:
    """Return a cluster whose nodes keep so many of their GPUs."""
    if not all(1 <= kept <= most for kept in node_gpus):
        listed = ", ".join(map(str, node_gpus))
        raise InvalidTopologyError(
            f"nodes of {listed} GPUs cannot be made of '{cluster.name}', whose nodes have {most}"
        )
    rank_in_node: Counter[int] = Counter()
    gone = set()
    for gpu in cluster.gpus:
        if rank_in_node[gpu.node] >= node_gpus[gpu.node]:
            gone.add(gpu.name)
        rank_in_node[gpu.node] += 1
    return replace(
        cluster,
        name=f"{cluster.name} with {'+'.join(map(str, node_gpus))} GPUs",
        devices=tuple(device for device in cluster.devices if device.name not in gone),
        links=tuple(link for link in cluster.links if not {link.src, link.dst} & gone),
    )


def _on_node(name: str, node: int) -> str:
    host, _, rest = name.partition("/")
    return f"n{node}/{rest}" if re.fullmatch(r"n\d+", host) and rest else f"n{node}/{name}"


def _cable(
    nic: str, switch: str, gb_per_s: float, latency_us: float, provenance: Provenance
) -> Iterator[Link]:
    for src, dst in ((nic, switch), (switch, nic)):
        yield Link(src, dst, LinkKind.NETWORK, gb_per_s, latency_us / 2, provenance)


def _uplinks(cables: Sequence[Link], oversubscription: float) -> Iterator[Link]:
    """Yield the links between every leaf and its spine, for the NICs that send to the leaf."""
    of_leaf: dict[str, list[float]] = {}
    for cable in cables:
        if "/" in cable.src:
            of_leaf.setdefault(cable.dst, []).append(cable.bandwidth_gb_per_s)
    for leaf, ports in of_leaf.items():
        spine = f"{leaf.rpartition('-')[0]}-spine"
        total_gb_per_s = sum(ports) / oversubscription
        for src, dst in ((leaf, spine), (spine, leaf)):
            yield Link(
                src, dst, LinkKind.NETWORK, total_gb_per_s, 0.0, Provenance.SPEC, lanes=len(ports)
            )


def _rack_text(network: Network) -> str:
    if len(network.racks) < 2:
        return ""
    text = f" in racks of {'+'.join(map(str, network.racks))}"
    return text if network.oversubscription == 1 else f"{text}, {network.oversubscription:g}:1"


def _check_machine(machine: Topology, nodes: int) -> None:
    problem = f"cannot put {nodes} nodes of '{machine.name}' on a network"
    if len({device.node for device in machine.devices}) != 1:
        raise InvalidTopologyError(f"{problem}: it is more than one host already; give one host")
    if not machine.nics:
        raise InvalidTopologyError(
            f"{problem}: it has no NIC; describe its NICs, or tune it as a single node"
        )


def _check_network(network: Network, nodes: int) -> None:
    bandwidth = network.bandwidth_gb_per_s
    if bandwidth is not None and not (math.isfinite(bandwidth) and bandwidth > 0):
        raise InvalidTopologyError(f"network bandwidth {bandwidth} GB/s; it must be above zero")
    if not (math.isfinite(network.latency_us) and network.latency_us >= 0):
        raise InvalidTopologyError(
            f"network latency {network.latency_us} us; it must be zero or more"
        )
    if network.racks and (min(network.racks) < 1 or sum(network.racks) != nodes):
        racks = "+".join(map(str, network.racks))
        raise InvalidTopologyError(f"racks of {racks} nodes do not hold {nodes} nodes")
    if not (math.isfinite(network.oversubscription) and network.oversubscription >= 1):
        raise InvalidTopologyError(
            f"oversubscription {network.oversubscription}; it must be 1 or more"
        )


def _port_gb_per_s(nic: Device, machine: Topology, network: Network) -> float:
    if network.bandwidth_gb_per_s is not None:
        return network.bandwidth_gb_per_s
    if nic.line_rate_gb_per_s <= 0:
        raise UnknownNicSpeedError(
            f"NIC '{nic.name}' of '{machine.name}' does not state its speed; "
            "give the network's bandwidth"
        )
    return nic.line_rate_gb_per_s
