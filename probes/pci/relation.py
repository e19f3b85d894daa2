"""Proximity of two PCI functions in the tree: `relation`.

Bridges are identified by their position: a root port is on a root bus; a switch is an upstream port
with downstream ports on the bus below it. A link leads to one device, so a bridge on a root bus
with several bridge devices below is not a root port but a switch (as in virtual machines).
"""

from __future__ import annotations

from enum import IntEnum

from probes.pci.address import slot_of
from probes.pci.inventory import PciFunction, PciInventory


class Relation(IntEnum):
    """The highest element on the path between two functions; less is closer."""

    SAME_DEVICE = 0
    """Functions of one device, or one function."""
    SWITCH = 1
    """One PCIe switch."""
    SWITCHES = 2
    """Several nested PCIe switches."""
    ROOT_PORT = 3
    """The link of a common root port, but no switch."""
    HOST_BRIDGE = 4
    """The host bridge of one root bus."""
    NUMA_NODE = 5
    """Several host bridges of one NUMA node."""
    SOCKET = 6
    """Several NUMA nodes of one socket."""
    SYSTEM = 7
    """The links between sockets."""
    UNKNOWN = 8
    """The system does not show it."""


def relation(inventory: PciInventory, a: str, b: str) -> Relation:
    """Return the relation of the functions at two addresses, which is symmetric.

    Raises:
        KeyError: no function has that address.
    """
    first, second = inventory.by_address[a], inventory.by_address[b]
    if slot_of(a) == slot_of(b):
        return Relation.SAME_DEVICE
    paths = [[*bridges_above(inventory, end)[::-1], end] for end in (first, second)]
    common = 0
    for a_bridge, b_bridge in zip(*paths, strict=False):
        if a_bridge.address != b_bridge.address:
            break
        common += 1
    if common:
        # The rest of each path below the last common bridge, the function last.
        return _below_one_bridge(paths[0][:common], [path[common:] for path in paths])
    if first.root == second.root:
        return Relation.HOST_BRIDGE
    return _across_host_bridges(inventory, first, second)


def bridges_above(inventory: PciInventory, function: PciFunction) -> list[PciFunction]:
    """Return the bridges above a function, nearest first; none if they form a loop."""
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
    """NUMA node that the function or a bridge above it states, else the host's only one."""
    for ancestor in (function, *bridges_above(inventory, function)):
        if ancestor.numa_node is not None:
            return ancestor.numa_node
    nodes = inventory.numa_nodes
    return nodes[0].number if len(nodes) == 1 else None


def _below_one_bridge(common: list[PciFunction], below: list[list[PciFunction]]) -> Relation:
    first = [path[0].address for path in below if path]
    if len(common) == 1 and not _has_downstream_ports(below, first):
        return Relation.ROOT_PORT
    # At most one port on each side: the downstream ports of the switch itself.
    return Relation.SWITCH if max(map(len, below)) <= 2 else Relation.SWITCHES


def _has_downstream_ports(below: list[list[PciFunction]], first: list[str]) -> bool:
    """Whether the bridges are two devices, which are then on the inner bus of a switch."""
    return all(len(path) > 1 for path in below) and len({slot_of(port) for port in first}) == 2


def _across_host_bridges(
    inventory: PciInventory, first: PciFunction, second: PciFunction
) -> Relation:
    nodes = [numa_node_of(inventory, function) for function in (first, second)]
    if None in nodes:
        return Relation.UNKNOWN
    if nodes[0] == nodes[1]:
        return Relation.NUMA_NODE
    packages = {node.number: node.package for node in inventory.numa_nodes}
    sockets = [packages.get(node) for node in nodes if node is not None]
    if None in sockets:
        return Relation.UNKNOWN
    return Relation.SOCKET if sockets[0] == sockets[1] else Relation.SYSTEM
