"""What makes direct PCIe traffic between GPUs and NICs take the way up to the CPU.

An IOMMU that translates addresses does, and so does PCIe access control (ACS): where a port below a
switch redirects requests, two devices of that switch exchange data over the root port, at half the
rate or less, whatever the IOMMU does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from probes.pci.inventory import PciFunction, PciInventory
from probes.pci.tree import FileTree
from tuccl.errors import TreeError

_GROUPS = "sys/kernel/iommu_groups"
PASSED_THROUGH = "identity"
"""Type of a group whose addresses are not translated (Linux, sysfs-kernel-iommu_groups)."""
_EXTENDED = 0x100
"""First extended capability (PCI Express Base Specification 6.0, 7.6)."""
_ACCESS_CONTROL, _CONTROL_AT = 0x000D, 6
"""Id of the capability, and where in it the control register is (7.7.11)."""
_REDIRECTS = 0b1100
"""Bits of the control register: P2P Request Redirect and P2P Completion Redirect."""


@dataclass(frozen=True, slots=True)
class Detour:
    """Two devices of one switch."""

    devices: tuple[str, str]
    """Their addresses."""
    redirecting: tuple[str, ...]
    """Addresses of the ports between them that redirect."""
    unknown: tuple[str, ...]
    """Addresses of the ports between them whose control register cannot be read."""


def iommu_types(tree: FileTree, devices: Sequence[str]) -> tuple[str, ...]:
    """Return the types of the devices' IOMMU groups, sorted; of all groups if none is named."""
    groups = {_group_of(tree, device) for device in devices} - {""}
    return tuple(sorted({_type_of(tree, group) for group in groups or _all_groups(tree)} - {""}))


def _group_of(tree: FileTree, device: str) -> str:
    try:
        return tree.resolve(f"sys/bus/pci/devices/{device}/iommu_group").rpartition("/")[2]
    except TreeError:
        return ""


def _all_groups(tree: FileTree) -> Sequence[str]:
    try:
        return tree.list(_GROUPS)
    except TreeError:
        return ()


def _type_of(tree: FileTree, group: str) -> str:
    try:
        return tree.read(f"{_GROUPS}/{group}/type").decode("ascii", "replace").strip()
    except TreeError:
        return ""


def detours(tree: FileTree, inventory: PciInventory, devices: Sequence[str]) -> tuple[Detour, ...]:
    """Return the pairs of devices of one switch whose traffic goes up, or may.

    Pairs without a common switch exchange data over the root ports in any case.
    """
    functions = {function.address: function for function in inventory.functions}
    redirects: dict[str, bool | None] = {}
    found = []
    for first, second in combinations(devices, 2):
        ports = _ports_between(functions, first, second)
        for port in ports:
            if port not in redirects:
                redirects[port] = _redirects(tree, port)
        detour = Detour(
            (first, second),
            tuple(port for port in ports if redirects[port]),
            tuple(port for port in ports if redirects[port] is None),
        )
        if detour.redirecting or detour.unknown:
            found.append(detour)
    return tuple(found)


def _ports_between(functions: dict[str, PciFunction], first: str, second: str) -> tuple[str, ...]:
    """Return the ports directly below the switch that two devices have in common.

    Functions below one port are of one device, and need no switch.
    """
    ways = [_way_up(functions, device) for device in (first, second)]
    common = next((bridge for bridge in ways[0] if bridge in ways[1]), None)
    if common is None:
        return ()
    return tuple(way[way.index(common) - 1] for way in ways if way[0] != common)


def _way_up(functions: dict[str, PciFunction], device: str) -> list[str]:
    """Return the bridges above a device, the nearest first."""
    way: list[str] = []
    at = functions.get(device)
    while at is not None and at.parent is not None and at.parent not in way:
        way.append(at.parent)
        at = functions.get(at.parent)
    return way


def _redirects(tree: FileTree, port: str) -> bool | None:
    """Whether a port redirects requests between its switch's ports; None: it cannot be read.

    The kernel gives the extended capabilities to root alone. A list that does not come to its end,
    as that of a port that does not answer, says nothing either.
    """
    try:
        space = tree.read(f"sys/bus/pci/devices/{port}/config")
    except TreeError:
        return None
    if len(space) < _EXTENDED + 4:
        return None
    at, seen = _EXTENDED, set[int]()
    while at >= _EXTENDED and at not in seen and at + 8 <= len(space):
        seen.add(at)
        (header,) = struct.unpack_from("<I", space, at)
        if header & 0xFFFF == _ACCESS_CONTROL:
            (control,) = struct.unpack_from("<H", space, at + _CONTROL_AT)
            return bool(control & _REDIRECTS)
        at = header >> 20 & 0xFFC
    return None if at else False
