"""`parse_hwloc_xml`: one host's PCI tree from an export of `lstopo --of xml` (hwloc 1, 2 and 3).

Bridges and devices are objects with bus ids, below the nearest CPU object; their I/O objects name
network interfaces and RDMA devices. hwloc has the bandwidth of a PCIe link, but neither its lanes
nor the speed of a port. Format: hwloc 2.9 hwloc2.dtd and topology-xml.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from probes.inputs.messages import shortened
from probes.inputs.xml_tree import XmlElement, read_xml
from probes.nccl_xml.records import GpuLinkRecord, GpuRecord
from probes.pci.address import address_key, is_address, root_of
from probes.pci.inventory import (
    MAX_FUNCTIONS,
    NETWORK,
    CpuModel,
    Gap,
    NicPort,
    NumaNode,
    PcieLink,
    PciFunction,
    PciInventory,
)
from probes.topology.bandwidth_class import nvlink_gb_per_s
from tuccl.errors import MachineError

_MAX_OBJECTS = 512
_P100 = ("10de:15f7", "10de:15f8", "10de:15f9")
_ITSELF_MB_PER_S = 1_000_000
"""hwloc's value from an object to itself, and for an unlimited link."""


def hwloc_gpu_records(text: str, source: str) -> dict[str, GpuRecord]:
    """Return GPUs by PCI address with their NVLinks; empty if the export has no such matrix.

    The GPUs have CUDA's numbers if the export has them, else NVML's.

    Raises:
        MachineError: Not well-formed XML; not of hwloc, or the matrix is damaged.
    """
    root = read_hwloc(text, source)
    matrix = next((e for e in root.children if e.attributes.get("name") == "NVLinkBandwidth"), None)
    if matrix is None:
        return {}
    devices = _devices(root)
    ends = _indexes(matrix)
    values = [int(v) for v in _words(matrix, "u64values") if re.fullmatch(r"\d{1,12}", v)]
    if not ends or len(ends) > _MAX_OBJECTS or len(values) != len(ends) ** 2:
        raise MachineError(
            f"{source}:{matrix.line}: NVLinkBandwidth has {len(ends)} objects and {len(values)} "
            "figures; export the machine again"
        )
    records = {}
    for row, end in enumerate(ends):
        gpu = devices.get(end)
        if gpu is None or _is_switch(gpu):
            continue
        links = []
        for column, peer_end in enumerate(ends):
            peer = devices.get(peer_end)
            count = _link_count(gpu, values[row * len(ends) + column])
            if peer is not None and column != row and count:
                links.append(_link(peer, count))
        number = _number(gpu)
        records[_address(gpu)] = GpuRecord(number, None, 0, tuple(links))
    return records


def _devices(root: XmlElement) -> dict[str, XmlElement]:
    """Return PCI devices by their own index and that of every object below them."""
    found = {}
    for device in objects_below(root):
        if device.attributes.get("type") == "PCIDev":
            for element in (device, *objects_below(device)):
                found[element.attributes.get("gp_index", "")] = device
    return found


def _indexes(matrix: XmlElement) -> list[str]:
    """Global indexes of the objects: `OSDev:802` if kinds are mixed, else `802`."""
    return [word.rpartition(":")[2] for word in _words(matrix, "indexes")]


def _words(matrix: XmlElement, tag: str) -> list[str]:
    return " ".join("".join(e.pieces) for e in matrix.children_of(tag)).split()


def _is_switch(device: XmlElement) -> bool:
    return device.attributes.get("subtype") == "NVSwitch"


def _address(device: XmlElement) -> str:
    return device.attributes.get("pci_busid", "").lower()


def _number(gpu: XmlElement) -> int | None:
    names = [o.attributes.get("name", "") for o in objects_below(gpu)]
    for tool in ("cuda", "nvml"):
        for name in names:
            if re.fullmatch(tool + r"\d{1,4}", name):
                return int(name[4:])
    return None


def _link_count(gpu: XmlElement, mb_per_s: int) -> int:
    """Number of links of a bandwidth: 20 GB/s each on a P100, 25 on later GPUs."""
    if mb_per_s >= _ITSELF_MB_PER_S:
        return 0
    p100 = any(f"[{part}]" in gpu.attributes.get("pci_type", "") for part in _P100)
    return round(mb_per_s / 1000 / nvlink_gb_per_s(60 if p100 else 0))


def _link(peer: XmlElement, count: int) -> GpuLinkRecord:
    target_class = "068000" if _is_switch(peer) else "030200"
    return GpuLinkRecord("nvlink", _address(peer), target_class, count, 0)


COMMAND = "`lstopo --of xml --whole-io FILE`"


def read_hwloc(text: str, source: str) -> XmlElement:
    """Parse an hwloc export and return its root.

    Raises:
        MachineError: Not well-formed XML, or another kind of XML file.
    """
    root = read_xml(text, source, "topology", frozenset({"indexes", "u64values"}))
    if root.tag != "topology":
        raise MachineError(
            f"{source}: an XML file with root <{root.tag:.40}>, hwloc's is <topology>; give a file "
            f"that {COMMAND} wrote"
        )
    return root


def objects_below(element: XmlElement) -> Iterator[XmlElement]:
    """Iterate over all objects of the tree, parents before children."""
    for child in element.children_of("object"):
        yield child
        yield from objects_below(child)


def infos_of(element: XmlElement) -> dict[str, str]:
    """Return the name-value pairs of an object."""
    return {
        info.attributes.get("name", ""): info.attributes.get("value", "")
        for info in element.children_of("info")
    }


def attribute_bits(element: XmlElement, name: str) -> int:
    """Parse a CPU or node set as a number; hwloc prints words of 32 bits, the highest first.

    `0xf0000000,,0x00000101`: an empty word is zero. 0 when the attribute is missing or invalid.
    """
    words = element.attributes.get(name, "").split(",")
    if len(words) > 4096 or not all(re.fullmatch(r"(0x[0-9a-f]{1,8})?", word) for word in words):
        return 0
    bits = 0
    for word in words:
        bits = bits << 32 | int(word or "0", 16)
    return bits


def os_device_kind(element: XmlElement, version: str) -> str:
    """Return `network`, `rdma` or empty; the type is an enumeration in hwloc 1 and 2, bits in 3."""
    text = element.attributes.get("osdev_type", "")
    number = int(text) if re.fullmatch(r"\d{1,4}", text) else 0
    if version.startswith("3"):
        return "rdma" if number & 32 else "network" if number & 16 else ""
    return {2: "network", 3: "rdma"}.get(number, "")


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
    length = infos.get("Address", "").count(":") + 1
    return NicPort(
        name=name,
        function=function.address,
        rdma_device=name if number else "",
        rdma_port=number,
        interface=interface,
        link_layer={6: "Ethernet", 20: "InfiniBand"}.get(length, function.link_layer),
    )


def _with_state(port: NicPort, state: str) -> NicPort:
    return replace(port, active=state in ("", "4"), state=_STATES.get(state, state))


_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")
_HOST_BRIDGE = re.compile(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})-[0-9a-f]{2}\]")

_LANE_GB_PER_S = {2.5: 0.25, 5.0: 0.5} | {rate: rate * 16 / 130 for rate in (8.0, 16.0, 32.0, 64.0)}
"""Bandwidth of a lane by GT/s, as hwloc 2.9 computes pci_link_speed (8b/10b, then 128b/130b)."""
_WIDTHS = (16, 12, 8, 4, 2, 1)
_ARCHITECTURES = {"ppc64le": "ppc64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class _Position:
    """Position of an object: its NUMA node, its root bus and the bridge above."""

    numa_node: int | None = None
    root: str = ""
    bridge: PciFunction | None = None


def parse_hwloc_xml(text: str, source: str) -> PciInventory:
    """Parse an hwloc export; `source` is its name in errors, usually the path.

    Raises:
        MachineError: Not well-formed XML; not of hwloc, without PCI devices, or with an invalid bus
            id.
    """
    root = read_hwloc(text, source)
    reader = _Reader(root, source)
    reader.read(root, _Position())
    if not reader.functions:
        raise MachineError(
            f"{source}: an hwloc export without PCI devices; write it with {COMMAND} on the host"
        )
    addresses = sorted(reader.functions, key=address_key)
    infos = _host_infos(root)
    return PciInventory(
        source=source,
        functions=tuple(reader.functions[address] for address in addresses),
        ports=tuple(port for address in addresses for port in reader.ports.get(address, ())),
        numa_nodes=reader.numa_nodes,
        cpu=_cpu(infos),
        gaps=tuple(_gaps(reader, root)),
        hostname=infos.get("HostName", ""),
    )


def _host_infos(root: XmlElement) -> dict[str, str]:
    """Return the infos of the host and its first package; hwloc 3 has some at the root."""
    infos: dict[str, str] = {}
    for element in (*objects_below(root), root):
        if element is root or element.attributes.get("type") in ("Machine", "Package", "Socket"):
            infos = infos_of(element) | infos
    return infos


class _Reader:
    """Walks the objects and collects functions and ports; expat has limited the depth."""

    def __init__(self, root: XmlElement, source: str) -> None:
        self.source = source
        self.version = root.attributes.get("version", "1")
        self.functions: dict[str, PciFunction] = {}
        self.ports: dict[str, list[NicPort]] = {}
        self.numa_nodes = _numa_nodes(root)
        self.node_numbers = frozenset(node.number for node in self.numa_nodes)
        self.link_speeds: dict[str, float] = {}
        self.ambiguous = False
        self.repeated: list[str] = []
        self.hidden: list[str] = []
        self.invalid_speeds: list[str] = []

    def read(self, element: XmlElement, position: _Position) -> None:
        for child in element.children_of("object"):
            below = position
            kind = child.attributes.get("type", "")
            if "nodeset" in child.attributes:
                below = _Position(self.node_of(child))
            if kind == "Bridge":
                below = self.below_bridge(child, position)
            elif kind == "PCIDev":
                function = self.function(child, position)
                if function.address in self.functions:
                    self.repeated.append(function.address)
                    continue
                self.functions[function.address] = function
                self.ports[function.address] = ports_of(child, function, self.version)
            self.read(child, below)

    def node_of(self, element: XmlElement) -> int | None:
        """Return the only node with CPUs in the element's node set; GPU memory has no CPUs."""
        bits = attribute_bits(element, "nodeset")
        numbers = [number for number in sorted(self.node_numbers) if bits >> number & 1]
        return numbers[0] if len(numbers) == 1 else None

    def below_bridge(self, element: XmlElement, position: _Position) -> _Position:
        """Return the position below a bridge: a root bus below a host bridge (0-1)."""
        if not element.attributes.get("bridge_type", "").startswith("0-"):
            bridge = self.function(element, position)
            if bridge.address in self.functions:
                raise self.error(element, f"{bridge.address} a second time; export the host again")
            self.functions[bridge.address] = bridge
            return replace(position, bridge=bridge)
        buses = element.attributes.get("bridge_pci", "").lower()
        match = _HOST_BRIDGE.fullmatch(buses)
        if match is None:
            raise self.error(element, f"bridge_pci={buses!a:.40}; buses look like 0000:[17-1a]")
        return replace(position, root=f"pci{match[1]}:{match[2]}")

    def function(self, element: XmlElement, position: _Position) -> PciFunction:
        address = element.attributes.get("pci_busid", "").lower()
        if not is_address(address):
            raise self.error(element, f"pci_busid={address!a:.40}; bus ids look like 0000:3b:00.0")
        if len(self.functions) >= MAX_FUNCTIONS:
            raise self.error(element, f"more than {MAX_FUNCTIONS:,} PCI functions")
        kind = _TYPE.match(element.attributes.get("pci_type", "").lower())
        code, vendor, device = (int(number, 16) for number in kind.groups()) if kind else (0, 0, 0)
        if not vendor:
            self.hidden.append(address)
            code = 0x0680 if element.attributes.get("subtype") == "NVSwitch" else code
        return PciFunction(
            address=address,
            root=position.root or root_of(address),
            parent=position.bridge.address if position.bridge else None,
            class_code=code << 8 if code or vendor else None,
            vendor=vendor or None,
            device=device if vendor else None,
            numa_node=position.numa_node,
            link=self.link(element, address, position.bridge),
        )

    def link(self, element: XmlElement, address: str, above: PciFunction | None) -> PcieLink | None:
        """Return the lesser of the two stated bandwidths as the widest link, up to x16."""
        text = element.attributes.get("pci_link_speed", "")
        stated = float(text) if re.fullmatch(r"\d{1,6}(\.\d{1,9})?", text) else 0.0
        self.link_speeds.setdefault(address, stated)
        port = self.link_speeds[above.address] if above else 0.0
        if not stated:
            return None
        speed = min(stated, port) if port else stated
        fitting = [
            PcieLink(rate, width)
            for width in _WIDTHS
            for rate, lane in _LANE_GB_PER_S.items()
            if abs(width * lane - speed) < 0.01 * speed
        ]
        self.ambiguous |= len(fitting) > 1
        if not fitting:
            self.invalid_speeds.append(address)
        return fitting[0] if fitting else None

    def error(self, element: XmlElement, problem: str) -> MachineError:
        kind = element.attributes.get("type", "object")
        return MachineError(f"{self.source}:{element.line}: {kind} with {problem:.120}")


def _numa_nodes(root: XmlElement) -> tuple[NumaNode, ...]:
    """Return nodes that have CPUs, with the package of their first CPU."""
    packages: dict[int, int] = {}
    nodes: dict[int, int] = {}
    for element in objects_below(root):
        known = {"NUMANode": nodes, "Package": packages, "Socket": packages}.get(
            element.attributes.get("type", "")
        )
        number = element.attributes.get("os_index", "")
        if known is not None and re.fullmatch(r"\d{1,5}", number):
            known[int(number)] = attribute_bits(element, "cpuset")
    return tuple(
        NumaNode(number, next((n for n, own in packages.items() if own & cpus & -cpus), None))
        for number, cpus in sorted(nodes.items())
        if cpus
    )


def _cpu(infos: dict[str, str]) -> CpuModel:
    arch = infos.get("Architecture", "")
    family, model = (infos.get(f"CPU{name}Number", "") for name in ("Family", "Model"))
    return CpuModel(
        arch=_ARCHITECTURES.get(arch, arch),
        vendor=infos.get("CPUVendor", ""),
        family=int(family) if re.fullmatch(r"\d{1,5}", family) else 0,
        model=int(model) if re.fullmatch(r"\d{1,5}", model) else 0,
    )


def _gaps(reader: _Reader, root: XmlElement) -> list[Gap]:
    nics = {f.address for f in reader.functions.values() if f.base_class == NETWORK}
    with_ports = {address for address, ports in reader.ports.items() if ports}
    named = (
        ("listed twice, taken as listed first", reader.repeated),
        ("speeds that no PCIe link has, left out", reader.invalid_speeds),
        ("devices that hide vendor and class", reader.hidden),
        (
            "network functions without an interface, left out",
            sorted(nics - with_ports, key=address_key),
        ),
    )
    gaps = [f"{problem}: {shortened(addresses)}" for problem, addresses in named if addresses]
    if reader.ambiguous:
        gaps.append(
            "it shows what a PCIe link does, not its lanes: taken as the widest link that does "
            "this (gen 3 x16 rather than gen 4 x8)"
        )
    if not any(reader.link_speeds.values()):
        gaps.append("no PCIe link speeds: lstopo was not run by root")
    if with_ports:
        gaps.append("it shows no speeds of network ports; a probe on the host does")
    if any(e.attributes.get("name") == "XGMIBandwidth" for e in root.children):
        gaps.append(
            "xGMI links are given as one bandwidth for all pairs, which is not what they do, and "
            "were not taken; RCCL's topology dump has them"
        )
    return [Gap("hwloc", problem) for problem in gaps]
