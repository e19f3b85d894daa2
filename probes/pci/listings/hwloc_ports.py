"""Network ports of an hwloc export: the I/O objects below a PCI device."""

from __future__ import annotations

import re
from dataclasses import replace

from probes.inputs.xml_tree import XmlElement
from probes.pci.inventory import NicPort, PciFunction
from probes.pci.listings.hwloc_objects import infos_of, os_device_kind

_PORT_STATE = re.compile(r"Port([1-9]\d?)State")
_STATES = {"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE", "5": "ACTIVE_DEFER"}
"""States by value of libibverbs' enum ibv_port_state."""


def ports_of(element: XmlElement, function: PciFunction, version: str) -> list[NicPort]:
    """Return the ports of a PCI device: those of its RDMA device, else its network interfaces.

    If the file does not number the ports of an RDMA device (hwloc before 1.5), one port per
    interface is assumed.
    """
    named: dict[str, dict[str, dict[str, str]]] = {"network": {}, "rdma": {}, "": {}}
    for child in element.children_of("object"):
        if child.attributes.get("type") == "OSDev":
            kind = os_device_kind(child, version)
            named[kind][child.attributes.get("name", "")] = infos_of(child)
    nets, rdma = named["network"], named["rdma"]
    if not rdma:
        plain = sorted(nets.items())
        return [_port(function, net, interface=net, infos=infos) for net, infos in plain]
    ports = []
    for device, infos in sorted(rdma.items()):
        states = {int(m[1]): infos[m[0]] for name in infos if (m := _PORT_STATE.fullmatch(name))}
        numbers = sorted(states) or list(range(1, max(1, len(nets)) + 1))
        for number in numbers:
            matching = [net for net, info in nets.items() if info.get("Port") == str(number)]
            if len(nets) == len(numbers) == len(rdma) == 1:
                matching = list(nets)
            interface = matching[0] if len(matching) == 1 else ""
            port = _port(function, device, interface, nets.get(interface, {}), number)
            ports.append(_with_state(port, states.get(number, "")))
    return ports


def _port(
    function: PciFunction, name: str, interface: str, infos: dict[str, str], number: int = 0
) -> NicPort:
    """Return a port; its hardware address (20 bytes: IPoIB) or class gives the link layer."""
    layer = {0x0200: "Ethernet", 0x0207: "InfiniBand"}.get((function.class_code or 0) >> 8, "")
    length = infos.get("Address", "").count(":") + 1
    return NicPort(
        name=name,
        function=function.address,
        rdma_device=name if number else "",
        rdma_port=number,
        interface=interface,
        link_layer={6: "Ethernet", 20: "InfiniBand"}.get(length, layer),
    )


def _with_state(port: NicPort, state: str) -> NicPort:
    return replace(port, active=state in ("", "4"), state=_STATES.get(state, state))
