"""The network ports of a host: RDMA devices of class/infiniband and interfaces of class/net.

An interface that belongs to an RDMA device goes with its port and does not count a second time.
Interfaces without a wire of their own (bridges, tunnels, containers) are left out unless the user
names them. Ports that are down stay, marked so.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from probes.inputs.printable import printable
from probes.nccl_xml.nics import is_pseudo
from probes.pci.address import address_key, is_address
from probes.pci.errors import TreeError
from probes.pci.inventory import NicPort
from probes.pci.values import (
    ValueReader,
    interface_gbit_per_s,
    rdma_gbit_per_s,
)

_INTERFACES = "sys/class/net"
_RDMA_DEVICES = "sys/class/infiniband"
_LINK_LAYERS = {"1": "Ethernet", "32": "InfiniBand"}
"""By ARP hardware type (Linux's include/uapi/linux/if_arp.h)."""
_ACTIVE = "4: ACTIVE"
_RDMA_STATE = re.compile(r"[0-5]: [A-Z_]{2,20}")
_OPERATION_STATES = frozenset(
    {"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"}
)
_UNREADABLE = "state not readable"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the device of a port sits."""

    function: str | None
    told: bool = True
    """The tree says where it sits, at a PCI device or elsewhere."""
    virtual: bool = False


def read_ports(
    reader: ValueReader, functions: Container[str], interfaces: Sequence[str]
) -> tuple[NicPort, ...]:
    """Ports by PCI address, then name; those at no PCI device last.

    Args:
        reader: of the host's tree.
        functions: addresses of the PCI functions that the host shows.
        interfaces: glob patterns of names that count although they look like pseudo devices.
    """
    places = {
        name: _place(reader, f"{_INTERFACES}/{name}", functions)
        for name in reader.names(_INTERFACES)
        if name != "bonding_masters"
    }
    rdma_ports: list[NicPort] = []
    for device in reader.names(_RDMA_DEVICES):
        folder = f"{_RDMA_DEVICES}/{device}"
        place = _place(reader, folder, functions)
        if place is None or (place.told and not place.function and not _named(device, interfaces)):
            continue  # software RDMA on top of an interface that counts itself
        if not place.told:
            reader.gap(device, "its PCI device is not told")
        beside = [name for name, other in places.items() if _together(place, other)]
        rdma_ports += _rdma_device(reader, device, place.function, beside)
    taken = {port.function for port in rdma_ports} - {None}
    taken_names = {port.interface for port in rdma_ports}
    plain = [
        _interface(reader, name, place.function)
        for name, place in places.items()
        if place is not None
        and place.function not in taken
        and name not in taken_names
        and (not _is_pseudo(name, place) or _named(name, interfaces))
    ]
    return tuple(sorted([*rdma_ports, *plain], key=_port_key))


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """What to sort names by so that `mlx5_10` comes after `mlx5_9`."""
    parts = re.findall(r"(\D*)(\d{0,18})", name)
    return tuple((text, int(digits or -1)) for text, digits in parts)


def _port_key(port: NicPort) -> tuple[object, ...]:
    address = address_key(port.function) if port.function else ()
    return (port.function is None, address, natural_key(port.name), port.rdma_port)


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_pseudo(name: str, place: _Place) -> bool:
    return place.function is None and (place.virtual or is_pseudo(name))


def _together(rdma: _Place, interface: _Place | None) -> bool:
    if interface is None or rdma.function is None:
        return False
    return rdma.function == interface.function


def _place(reader: ValueReader, path: str, functions: Container[str]) -> _Place | None:
    """None where the entry leads nowhere."""
    try:
        folder = reader.tree.resolve(path)
    except TreeError as error:
        if not is_pseudo(path.rpartition("/")[2]):  # snapshots often leave out where those lead
            reader.gap(path, f"cannot be followed ({error}); it was left out")
        return None
    try:
        folder = reader.tree.resolve(f"{path}/device")
    except TreeError as error:
        if not error.missing:
            reader.gap(f"{path}/device", f"cannot be followed ({error})")
    parts = folder.split("/")
    addresses = [place for place, part in enumerate(parts) if is_address(part)]
    if not addresses or any(part.startswith("usb") for part in parts[addresses[-1] :]):
        # A USB adapter shares its bus with keyboards; its controller says nothing of its speed.
        told = not folder.startswith("sys/class/")
        return _Place(None, told, virtual="devices/virtual/" in folder)
    address = parts[addresses[-1]]
    if address not in functions:
        reader.gap(path, f"it sits at {address}, which the host does not list")
        return _Place(None, told=False)
    return _Place(address)


def _rdma_device(
    reader: ValueReader, device: str, function: str | None, beside: Sequence[str]
) -> list[NicPort]:
    folder = f"{_RDMA_DEVICES}/{device}/ports"
    numbers = [int(name) for name in reader.names(folder) if re.fullmatch(r"[1-9]\d{0,2}", name)]
    if not numbers:
        reader.gap(device, "the RDMA device shows no ports")
    only = beside[0] if len(beside) == len(numbers) == 1 else ""
    return [
        _rdma_port(
            reader, device, function, number, _interface_of(reader, device, number, beside) or only
        )
        for number in sorted(numbers)
    ]


def _rdma_port(
    reader: ValueReader, device: str, function: str | None, number: int, interface: str
) -> NicPort:
    folder = f"{_RDMA_DEVICES}/{device}/ports/{number}"
    state = reader.value(f"{folder}/state", _rdma_state, needed=True) or _UNREADABLE
    active = state == _ACTIVE
    # A port that is down still states a rate, which means nothing.
    rate = reader.value(f"{folder}/rate", rdma_gbit_per_s, needed=True) if active else None
    physical = reader.quiet_text(f"{folder}/phys_state")
    return NicPort(
        name=printable(device),
        function=function,
        rdma_device=printable(device),
        rdma_port=number,
        interface=printable(interface),
        link_layer=reader.value(f"{folder}/link_layer", _link_layer) or "",
        speed_gbit_per_s=rate,
        active=active,
        state=f"{state} ({printable(physical)})" if physical and not active else state,
    )


def _rdma_state(text: str) -> str:
    if _RDMA_STATE.fullmatch(text) is None:
        raise ValueError("which is no state of a port")
    return text


def _link_layer(text: str) -> str:
    if text == "Unknown":  # a fabric of its own, such as Amazon's EFA
        return ""
    if text not in _LINK_LAYERS.values():
        raise ValueError("which is no link layer")
    return text


def _interface_of(reader: ValueReader, device: str, number: int, beside: Sequence[str]) -> str:
    """The interface that carries the port's addresses: told by RoCE, else by its port number."""
    told = reader.quiet_text(f"{_RDMA_DEVICES}/{device}/ports/{number}/gid_attrs/ndevs/0")
    if told and told in reader.names(_INTERFACES):
        return told
    numbered = {}
    for name in sorted(beside, key=natural_key, reverse=True):
        numbered[reader.quiet_text(f"{_INTERFACES}/{name}/dev_port") or "0"] = name
    return numbered.get(str(number - 1), "")


def _interface(reader: ValueReader, name: str, function: str | None) -> NicPort:
    folder = f"{_INTERFACES}/{name}"
    state = reader.value(f"{folder}/operstate", _operation_state, needed=True) or _UNREADABLE
    # Drivers that do not keep a state leave it unknown; the carrier then decides.
    carrier = reader.quiet_text(f"{folder}/carrier") if state == "unknown" else ""
    active = state == "up" or (state == "unknown" and carrier != "0")
    return NicPort(
        name=printable(name),
        function=function,
        interface=printable(name),
        link_layer=_LINK_LAYERS.get(reader.quiet_text(f"{folder}/type"), ""),
        speed_gbit_per_s=reader.value(f"{folder}/speed", interface_gbit_per_s) if active else None,
        active=active,
        state=state,
    )


def _operation_state(text: str) -> str:
    if text not in _OPERATION_STATES:
        raise ValueError("which is no state of an interface")
    return text
