"""How close two PCI functions sit: `relation`.

Bridges are told apart by their place: a root port sits on a root bus; a switch is an upstream port
with downstream ports on the bus below it. A link leads to one device, so a bridge on a root bus
with several bridge devices below is no root port but a switch (virtual machines show those).
"""

from __future__ import annotations

from enum import IntEnum

from probes.pci.address import slot_of
from probes.pci.inventory import PciFunction, PciInventory


class Relation(IntEnum):
    """What the way between two functions passes at most; less is closer."""

    SAME_DEVICE = 0
    """Functions of one device, or one function."""
    SWITCH = 1
    """One PCIe switch."""
    SWITCHES = 2
    """Several PCIe switches below one another."""
    ROOT_PORT = 3
    """They share the link of a root port, but no switch."""
    HOST_BRIDGE = 4
    """The host bridge of one root bus."""
    NUMA_NODE = 5
    """Several host bridges of one NUMA node."""
    SOCKET = 6
    """Several NUMA nodes of one socket."""
    SYSTEM = 7
    """The links between sockets."""
    UNKNOWN = 8
    """The system does not say."""


def relation(inventory: PciInventory, a: str, b: str) -> Relation:
    """Relation of the functions at two addresses; the same both ways.

    Raises:
        KeyError: no function of that address.
    """
    one, other = inventory.by_address[a], inventory.by_address[b]
    if slot_of(a) == slot_of(b):
        return Relation.SAME_DEVICE
    ways = [[*bridges_above(inventory, end)[::-1], end] for end in (one, other)]
    shared = 0
    for here, there in zip(*ways, strict=False):
        if here.address != there.address:
            break
        shared += 1
    if shared:
        # Of each way what lies below the last bridge that both share, the function last.
        return _below_one_bridge(ways[0][:shared], [way[shared:] for way in ways])
    if one.root == other.root:
        return Relation.HOST_BRIDGE
    return _across_host_bridges(inventory, one, other)


def bridges_above(inventory: PciInventory, function: PciFunction) -> list[PciFunction]:
    """Bridges from the one directly above up to the root bus; none where they form a loop."""
    above: list[PciFunction] = []
    seen = {function.address}
    parent = function.parent
    while parent is not None and parent in inventory.by_address:
        if parent in seen:
            return []
        seen.add(parent)
        above.append(inventory.by_address[parent])
        parent = above[-1].parent
    return above


def numa_node_of(inventory: PciInventory, function: PciFunction) -> int | None:
    """NUMA node that the function or a bridge above it states; the only one of the host, else."""
    for place in (function, *bridges_above(inventory, function)):
        if place.numa_node is not None:
            return place.numa_node
    nodes = inventory.numa_nodes
    return nodes[0].number if len(nodes) == 1 else None


def _below_one_bridge(common: list[PciFunction], below: list[list[PciFunction]]) -> Relation:
    first = [way[0].address for way in below if way]
    if len(common) == 1 and not _has_downstream_ports(below, first):
        return Relation.ROOT_PORT
    # One port on each side at most: the downstream ports of the switch itself.
    return Relation.SWITCH if max(map(len, below)) <= 2 else Relation.SWITCHES


def _has_downstream_ports(below: list[list[PciFunction]], first: list[str]) -> bool:
    """Two bridges that are not functions of one device sit on the inner bus of a switch."""
    return all(len(way) > 1 for way in below) and len({slot_of(port) for port in first}) == 2


def _across_host_bridges(inventory: PciInventory, one: PciFunction, other: PciFunction) -> Relation:
    nodes = [numa_node_of(inventory, function) for function in (one, other)]
    if None in nodes:
        return Relation.UNKNOWN
    if nodes[0] == nodes[1]:
        return Relation.NUMA_NODE
    packages = {node.number: node.package for node in inventory.numa_nodes}
    sockets = [packages.get(node) for node in nodes if node is not None]
    if None in sockets:
        return Relation.UNKNOWN
    return Relation.SOCKET if sockets[0] == sockets[1] else Relation.SYSTEM
