"""Cards with several functions, which a topology models as a PCIe switch with a port per function.

A card that loses its second port loses this switch, though no switch left the machine.
"""

from __future__ import annotations

from dataclasses import replace

from probes.topology.graph import DeviceKind, Link, LinkKind, Topology

_ENDPOINTS = (DeviceKind.GPU, DeviceKind.NIC)


def functions_of_card(topology: Topology, name: str) -> tuple[str, ...]:
    """Names of the GPU and ports of the card that this switch models; none for a real switch."""
    switch = topology.device[name]
    if switch.kind is not DeviceKind.PCIE_SWITCH or not switch.bus_id:
        return ()
    linked = (topology.device[link.src] for link in topology.links_to[name])
    return tuple(d.name for d in linked if d.kind in _ENDPOINTS and d.bus_id == switch.bus_id)


def without_lone_cards(topology: Topology, reference: Topology) -> Topology:
    """Attach ports to the device above their card, where the reference has no switch for the card.

    Devices of equal name are the same device in both topologies.
    """
    above = {
        device.name: parent
        for device in topology.devices
        if device.name not in reference.device
        and any(name in reference.device for name in functions_of_card(topology, device.name))
        and (parent := _parent(topology, device.name))
    }
    if not above:
        return topology
    moved = (
        replace(link, src=above.get(link.src, link.src), dst=above.get(link.dst, link.dst))
        for link in topology.links
        if not _is_uplink(link, above)
    )
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.name not in above),
        links=tuple(moved),
    )


def _parent(topology: Topology, card: str) -> str:
    """Name of the CPU or switch above the card; empty if there is none."""
    for link in topology.links_from[card]:
        kind = topology.device[link.dst].kind
        if link.kind is LinkKind.PCIE and kind in (DeviceKind.CPU, DeviceKind.PCIE_SWITCH):
            return link.dst
    return ""


def _is_uplink(link: Link, above: dict[str, str]) -> bool:
    return above.get(link.src) == link.dst or above.get(link.dst) == link.src
