"""NVLink domains of several hosts: `joined`, and their hosts.

A domain is what NVLink joins, on one host or several (trays of an NVL72). NCCL counts it as one
node (`comm->MNNVL` in NCCL 2.30 src/graph/topo.cc: one NVSwitch for all its GPUs), and so does a
topology: its devices have one node, and `Device.host_in_node` names the host of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from probes.topology.graph import NETWORK_NODE, Device, DeviceKind, Topology
from probes.topology.hosts import folded, host_name


def joined(topology: Topology, domains: Iterable[Sequence[int]]) -> Topology:
    """Return the topology with all hosts of a domain as one node.

    Devices are numbered through the domain in the order of its hosts, and NVSwitches with the same
    number on all of them are one. Nodes are numbered anew, in the order of their first hosts.

    Args:
        topology: Hosts, each of which is a node.
        domains: The nodes of each domain; what is in none stays a node of its own.
    """
    first_of = {host: min(domain) for domain in domains for host in domain}
    members: dict[int, list[int]] = {}
    for host in sorted({device.node for device in topology.devices} - {NETWORK_NODE}):
        members.setdefault(first_of.get(host, host), []).append(host)
    devices = {device: device for device in topology.devices if device.node == NETWORK_NODE}
    for node, hosts in enumerate(members.values()):
        before = Counter[DeviceKind]()
        for position, host in enumerate(hosts):
            own = [device for device in topology.devices if device.node == host]
            devices.update((device, _moved(device, node, position, before)) for device in own)
            before += Counter(device.kind for device in own)
    names = tuple(folded(host_name(topology, each) for each in hosts) for hosts in members.values())
    return replace(_renamed(topology, devices), hosts=names if topology.hosts else ())


def hosts_of_node(topology: Topology) -> tuple[Topology, ...]:
    """Return the hosts of a topology of one node, each with the NVSwitches that it is linked to.

    Devices of a host are numbered from 0.
    """
    hosts = sorted({device.host_in_node for device in topology.devices})
    if len(hosts) == 1:
        return (topology,)
    before, found = Counter[DeviceKind](), []
    for host in hosts:
        own = [device for device in topology.devices if device.host_in_node == host]
        shift = Counter({kind: -count for kind, count in before.items()})
        moved = {device: _moved(device, device.node, 0, shift) for device in own}
        found.append(_renamed(_with_switches(topology, {each.name for each in own}), moved))
        before += Counter(device.kind for device in own)
    return tuple(found)


def _moved(device: Device, node: int, position: int, shift: Mapping[DeviceKind, int]) -> Device:
    """Return a device of another node, with a larger number in its name but for NVSwitches."""
    more = 0 if device.kind is DeviceKind.NVSWITCH else shift.get(device.kind, 0)
    short = device.name.rpartition("/")[2]
    stem = short.rstrip("0123456789")
    number = str(int(short.removeprefix(stem) or 0) + more) if more else short.removeprefix(stem)
    return replace(
        device,
        name=f"n{node}/{stem}{number}",
        node=node,
        index=device.index + more,
        host_in_node=position,
    )


def _renamed(topology: Topology, devices: Mapping[Device, Device]) -> Topology:
    """Return a topology with other devices in the places of its own; of equal names the first."""
    new = {device.name: devices.get(device, device) for device in topology.devices}
    distinct: dict[str, Device] = {}
    for device in new.values():
        distinct.setdefault(device.name, device)

    def name(old: str) -> str:
        return new[old].name

    return replace(
        topology,
        devices=tuple(distinct.values()),
        links=tuple(replace(e, src=name(e.src), dst=name(e.dst)) for e in topology.links),
        limits=tuple(replace(e, src=name(e.src), dst=name(e.dst)) for e in topology.limits),
    )


def _with_switches(topology: Topology, own: AbstractSet[str]) -> Topology:
    """Return these devices of a topology, and the NVSwitches that they are linked to."""
    inside = set(own)
    for link in topology.links:
        for end, other in ((link.src, link.dst), (link.dst, link.src)):
            if end in own and topology.device[other].kind is DeviceKind.NVSWITCH:
                inside.add(other)
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.name in inside),
        links=tuple(link for link in topology.links if {link.src, link.dst} <= inside),
        limits=tuple(limit for limit in topology.limits if {limit.src, limit.dst} <= inside),
    )
