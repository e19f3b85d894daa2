"""The network ports of a host: RDMA devices of class/infiniband and interfaces of class/net.

An interface of an RDMA device is part of its port and not a second port. Interfaces without a cable
of their own (bridges, tunnels, containers) are left out unless the user names them. Ports that are
down are kept and marked.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from probes.inputs.messages import printable
from probes.inputs.natural_order import natural_key
from probes.nccl_xml.nics import is_pseudo
from probes.pci.address import address_key, is_address
from probes.pci.inventory import NicPort
from probes.pci.values import (
    ValueReader,
    interface_gbit_per_s,
    rdma_gbit_per_s,
)
from tuccl.errors import TreeError

_INTERFACES = "sys/class/net"
_RDMA_DEVICES = "sys/class/infiniband"
_LINK_LAYERS = {"1": "Ethernet", "32": "InfiniBand"}
"""Link layers by ARP hardware type (Linux's include/uapi/linux/if_arp.h)."""
_ACTIVE = "4: ACTIVE"
_RDMA_STATE = re.compile(r"[0-5]: [A-Z_]{2,20}")
_OPERATION_STATES = frozenset(
    {"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"}
)
_UNREADABLE = "state not readable"


@dataclass(frozen=True, slots=True)
class _Position:
    """Position of a port's device."""

    function: str | None
    known: bool = True
    """Whether the tree shows its position, at a PCI device or elsewhere."""
    virtual: bool = False


def read_ports(
    reader: ValueReader, functions: Container[str], interfaces: Sequence[str]
) -> tuple[NicPort, ...]:
    """Read the ports by PCI address, then name; ports without a PCI device come last.

    Interfaces whose name matches a pattern in `interfaces` count although they look like pseudo
    devices.
    """
    positions = {
        name: _position(reader, f"{_INTERFACES}/{name}", functions)
        for name in reader.names(_INTERFACES)
        if name != "bonding_masters"
    }
    rdma_ports: list[NicPort] = []
    for device in reader.names(_RDMA_DEVICES):
        folder = f"{_RDMA_DEVICES}/{device}"
        position = _position(reader, folder, functions)
        if position is None or (
            position.known and not position.function and not _matches(device, interfaces)
        ):
            continue  # software RDMA on top of an interface that counts itself
        if not position.known:
            reader.gap(device, "its PCI device is not shown")
        siblings = [name for name, at in positions.items() if _same_function(position, at)]
        rdma_ports += _rdma_device(reader, device, position.function, siblings)
    used = {port.function for port in rdma_ports} - {None}
    used_names = {port.interface for port in rdma_ports}
    plain = [
        _interface(reader, name, position.function)
        for name, position in positions.items()
        if position is not None
        and position.function not in used
        and name not in used_names
        and (not _is_pseudo(name, position) or _matches(name, interfaces))
    ]
    return tuple(sorted([*rdma_ports, *plain], key=_port_key))


def _port_key(port: NicPort) -> tuple[object, ...]:
    address = address_key(port.function) if port.function else ()
    return (port.function is None, address, natural_key(port.name), port.rdma_port)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_pseudo(name: str, position: _Position) -> bool:
    return position.function is None and (position.virtual or is_pseudo(name))


def _same_function(rdma: _Position, interface: _Position | None) -> bool:
    if interface is None or rdma.function is None:
        return False
    return rdma.function == interface.function


def _position(reader: ValueReader, path: str, functions: Container[str]) -> _Position | None:
    """Return the position of a class entry; None for a broken link."""
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
    names = folder.split("/")
    addresses = [index for index, name in enumerate(names) if is_address(name)]
    if not addresses or any(name.startswith("usb") for name in names[addresses[-1] :]):
        # A USB adapter shares its bus; its controller does not determine its speed.
        known = not folder.startswith("sys/class/")
        return _Position(None, known, virtual="devices/virtual/" in folder)
    address = names[addresses[-1]]
    if address not in functions:
        reader.gap(path, f"it sits at {address}, which the host does not list")
        return _Position(None, known=False)
    return _Position(address)


def _rdma_device(
    reader: ValueReader, device: str, function: str | None, siblings: Sequence[str]
) -> list[NicPort]:
    folder = f"{_RDMA_DEVICES}/{device}/ports"
    numbers = [int(name) for name in reader.names(folder) if re.fullmatch(r"[1-9]\d{0,2}", name)]
    if not numbers:
        reader.gap(device, "the RDMA device shows no ports")
    only = siblings[0] if len(siblings) == len(numbers) == 1 else ""
    return [
        _rdma_port(
            reader,
            device,
            function,
            number,
            _interface_of(reader, device, number, siblings) or only,
        )
        for number in sorted(numbers)
    ]


def _rdma_port(
    reader: ValueReader, device: str, function: str | None, number: int, interface: str
) -> NicPort:
    folder = f"{_RDMA_DEVICES}/{device}/ports/{number}"
    state = reader.value(f"{folder}/state", _rdma_state, needed=True) or _UNREADABLE
    active = state == _ACTIVE
    # The rate of a port that is down is meaningless.
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
        raise ValueError("which is not a state of a port")
    return text


def _link_layer(text: str) -> str:
    if text == "Unknown":  # a fabric of its own, such as Amazon's EFA
        return ""
    if text not in _LINK_LAYERS.values():
        raise ValueError("which is not a link layer")
    return text


def _interface_of(reader: ValueReader, device: str, number: int, siblings: Sequence[str]) -> str:
    """The interface with the port's addresses: from the RoCE GID, else by its port number."""
    stated = reader.quiet_text(f"{_RDMA_DEVICES}/{device}/ports/{number}/gid_attrs/ndevs/0")
    if stated and stated in reader.names(_INTERFACES):
        return stated
    numbered = {}
    for name in sorted(siblings, key=natural_key, reverse=True):
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
        raise ValueError("which is not a state of an interface")
    return text
