"""`topology_to_nccl_xml`: a topology as a file for NCCL_TOPO_FILE, and for reading back.

NCCL's file has generations and counts where a topology has figures: PCIe speed and width, the
number of NVLinks of a GPU with its compute capability, the model of a CPU. The values written give
a figure of the same bandwidth class when they are read back, so a machine that the form can
represent keeps its fingerprint. `export_losses` lists the losses.

Elements and attributes are those of NCCL 2.30 src/graph/xml.cc, with AMD's architecture by name as
in RCCL with MI300 support. NCCL and RCCL complete missing attributes of a `<cpu>`, and `sm` and
`arch` of AMD's `<gpu>`, from their host.
"""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET  # Only written with, never read with.
from collections.abc import Iterator, Sequence
from dataclasses import replace

from probes.comparison.changes import describe_changes
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.nccl_xml.nics import is_pseudo
from probes.topology.bandwidth_class import PCIE_GT_PER_S, bandwidth_class, pcie_generation
from probes.topology.device_tree import Branch, HostTrees, host_trees
from probes.topology.domains import hosts_of_node
from probes.topology.figure_text import counted, gfx_name
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.hosts import split_hosts
from probes.topology.validation import check_structure
from tuccl.errors import MachineError

_MAX_CHANGES = 4


def export_losses(topology: Topology) -> tuple[str, ...]:
    """Return a sentence for each loss; empty when the file represents everything.

    Raises:
        MachineError: as `topology_to_nccl_xml`.
    """
    text = topology_to_nccl_xml(topology)
    measured = sum(link.provenance is Provenance.MEASURED for link in topology.links)
    timed = sum(link.latency_provenance is Provenance.MEASURED for link in topology.links)
    guessed = sum("<cpu " in line and "arch=" in line for line in text.splitlines())
    memory = sum(gpu.memory_bytes > 0 for gpu in topology.gpus)
    losses = [
        f"Not in the file: {fact}."
        for count, fact in (
            (measured, f"the bandwidth measured on {counted(measured, 'link')}"),
            (timed, f"the latency measured on {counted(timed, 'link')}"),
            (len(topology.limits), f"the limit of {counted(len(topology.limits), 'pair')}"),
            (memory, f"the memory of {counted(memory, 'GPU')}"),
            (any(topology.hosts), "the names of hosts"),
        )
        if count
    ]
    if guessed:
        losses.append(
            f"The make of {counted(guessed, 'CPU')} was chosen by the bandwidth between them."
        )
    return (*losses, *_read_back_changes(topology, text))


def _read_back_changes(topology: Topology, text: str) -> Iterator[str]:
    """Yield a sentence for each change of the machine when the file is read back."""
    try:
        read_back = parse_nccl_xml(text, f"{topology.name}.xml")
    except MachineError as error:
        yield f"The file cannot be read back: {error}."
        return
    changes = describe_changes(replace(topology, limits=()), read_back)
    yield from (f"Read back: {change}" for change in changes[:_MAX_CHANGES])
    if len(changes) > _MAX_CHANGES:
        yield f"Read back: {len(changes) - _MAX_CHANGES} more changes."


_BRIDGE, _GPU, _NIC = "0x060400", "0x030200", "0x020000"
"""PCI classes: PCI-to-PCI bridge, 3D controller, Ethernet controller."""
_NVSWITCH_TARGET = {"target": "fffffff:ff:ff.0", "tclass": "0x068000"}
"""NVML's name of a hidden NVSwitch."""
_CPU_TARGET = {"target": "fffffff:ff:fe.0", "tclass": "0x068001"}

_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")

_INTEL = {"arch": "x86_64", "vendor": "GenuineIntel", "familyid": "6"}
_CPU_MODELS: tuple[tuple[float, dict[str, str]], ...] = (
    (6.0, {}),
    (10.0, _INTEL | {"modelid": "85"}),
    (16.0, {"arch": "x86_64", "vendor": "AuthenticAMD", "familyid": "143", "modelid": "49"}),
    (22.0, _INTEL | {"modelid": "143"}),
    (32.0, {"arch": "ppc64"}),
    (40.0, _INTEL | {"modelid": "207"}),
)
"""Attributes for each bandwidth between CPUs that NCCL knows
(`probes.topology.bandwidth_class`)."""


def topology_to_nccl_xml(topology: Topology) -> str:
    """Format hosts without a network as XML, with a newline at the end.

    Raises:
        MachineError: NCCL's file cannot represent it: a network, no GPU, a device without
            a CPU.
        InvalidTopologyError: the topology breaks a rule.
    """
    check_structure(topology)
    nodes = split_hosts(topology)
    _check(topology, nodes)
    amd = any(gfx_name(gpu.compute_capability) for gpu in topology.gpus)
    system = ET.Element("system", version="2" if amd else "1")
    has_nets = any(nic.line_rate_gb_per_s > 0 for nic in topology.nics)
    rank = 0
    hosts = [host for node in nodes.values() for host in hosts_of_node(node)]
    for number, host in enumerate(hosts):
        host_hash = f"0x{number + 1:016x}" if len(hosts) > 1 else ""
        _Host(host, rank, has_nets=has_nets).write(system, host_hash)
        rank += len(host.gpus)
    ET.indent(system, "  ")
    return ET.tostring(system, encoding="unicode") + "\n"


def _check(topology: Topology, hosts: dict[int, Topology]) -> None:
    cannot = f"topology '{topology.name}' cannot be written as NCCL's XML"
    outside = any(device.node == NETWORK_NODE for device in topology.devices)
    if outside or sum(len(host.links) for host in hosts.values()) < len(topology.links):
        raise MachineError(
            f"{cannot}: it has no place for the network; export one of its {len(hosts)} hosts "
            "(--host)"
        )
    if not topology.gpus:
        raise MachineError(f"{cannot}: it has no GPU; give a machine with GPUs")
    switched = {d.node for d in topology.devices if d.kind is DeviceKind.NVSWITCH}
    if len(hosts) > 1 and len(switched) > 1:
        raise MachineError(
            f"{cannot}: NCCL would read the NVSwitches of its {len(hosts)} nodes as one; "
            "export one of them (--host)"
        )


class _Host:
    """The elements of one host."""

    def __init__(self, host: Topology, first_rank: int, *, has_nets: bool) -> None:
        self.host = host
        self.trees = host_trees(host)
        self.first_rank = first_rank
        self.has_nets = has_nets
        self.number = {
            device.name: number
            for devices in (host.gpus, host.nics)
            for number, device in enumerate(devices)
        }
        self.bus_ids = _bus_ids(self.trees)
        self.pci_links: dict[str, list[str]] = {}
        self.net_names: set[str] = set()
        uplinks = {branch.device.name: branch.uplink for branch in self.trees.walk()}
        for link in self.trees.switch_links:
            # When read back, it is as wide as the uplink of the switch that states it.
            src, dst = link.src, link.dst
            if not _same_class(uplinks[src], link) and _same_class(uplinks[dst], link):
                src, dst = dst, src
            self.pci_links.setdefault(src, []).append(self.bus_ids[dst])

    def write(self, system: ET.Element, host_hash: str) -> None:
        for number, root in enumerate(self.trees.roots):
            if root.device.kind is not DeviceKind.CPU:
                raise MachineError(
                    f"topology '{self.host.name}' cannot be written as NCCL's XML: "
                    f"'{root.device.name}' hangs on no CPU; add a PCIe link to one"
                )
            cpu = ET.SubElement(system, "cpu", numaid=str(number))
            if host_hash:
                cpu.set("host_hash", host_hash)
            cpu.attrib.update(_cpu_attributes(self.host, root.device))
            without_bus = [child for child in root.children if self.is_without_bus(child)]
            for child in root.children:
                if child not in without_bus:
                    self.write_pci(cpu, child)
            self.write_nets(cpu, without_bus, without_bus=True)

    def is_without_bus(self, branch: Branch) -> bool:
        """Whether it is a NIC of which only the speed is known."""
        nic, up = branch.device, branch.uplink
        if nic.kind is not DeviceKind.NIC or nic.bus_id or not nic.line_rate_gb_per_s or not up:
            return False
        own = Link(up.src, up.dst, up.kind, nic.line_rate_gb_per_s, 0, up.provenance)
        return _same_class(up, own)

    def write_pci(self, parent: ET.Element, branch: Branch) -> None:
        """Write a device, or a switch together with the functions of its card."""
        own = _functions(branch)
        functions = own or (branch,)
        gpus = [function.device for function in functions if function.device.kind is DeviceKind.GPU]
        nics = [function for function in functions if function.device.kind is DeviceKind.NIC]
        pci_class = _GPU if gpus else _NIC if nics else _BRIDGE
        pci = ET.SubElement(parent, "pci", busid=self.bus_ids[branch.device.name])
        pci.set("class", _NIC if nics and not self.has_nets else pci_class)
        model = (gpus[0] if gpus else functions[0].device).model
        if model:
            pci.set("vendor", f"0x{model[:4]}")
            pci.set("device", f"0x{model[5:]}")
        if branch.uplink is not None:
            generation = pcie_generation(branch.uplink)
            pci.set("link_speed", f"{PCIE_GT_PER_S[generation - 1]} GT/s PCIe")
            pci.set("link_width", str(branch.uplink.lanes))
        for gpu in gpus:
            self.write_gpu(pci, gpu)
        if self.has_nets:
            self.write_nets(pci, nics, without_bus=False)
        for child in branch.children:
            if child not in own:
                self.write_pci(pci, child)
        for target in self.pci_links.get(branch.device.name, ()):
            ET.SubElement(pci, "pcilink", target=target)

    def write_gpu(self, pci: ET.Element, gpu: Device) -> None:
        number = self.number[gpu.name]
        element = ET.SubElement(pci, "gpu", dev=str(number))
        architecture = gfx_name(gpu.compute_capability)
        if architecture:
            element.set("gcn", architecture)
        elif gpu.compute_capability:
            element.set("sm", str(gpu.compute_capability))
        if gpu.lacks_multicast:
            element.set("multicast", "0")
        element.set("rank", str(self.first_rank + number))
        for link in self.host.links_from[gpu.name]:
            self.write_gpu_link(element, link)

    def write_gpu_link(self, element: ET.Element, link: Link) -> None:
        peer = self.host.device[link.dst].kind
        if link.kind is LinkKind.C2C:
            mb_per_s = round(link.bandwidth_gb_per_s * 1000 / link.lanes)
            ET.SubElement(element, "c2c", bw=str(mb_per_s), count=str(link.lanes))
        elif link.kind in (LinkKind.NVLINK, LinkKind.XGMI):
            target = {"target": self.bus_ids.get(link.dst, ""), "tclass": _GPU}
            if peer is DeviceKind.NVSWITCH:
                target = _NVSWITCH_TARGET
            elif peer is DeviceKind.CPU:
                target = _CPU_TARGET
            ET.SubElement(element, link.kind.value, target, count=str(link.lanes))

    def write_nets(
        self, parent: ET.Element, branches: Sequence[Branch], *, without_bus: bool
    ) -> None:
        if not branches:
            return
        nic = ET.SubElement(parent, "nic")
        for branch in branches:
            device, number = branch.device, self.number[branch.device.name]
            name = device.os_name.strip()
            if without_bus and (not name or is_pseudo(name) or name in self.net_names):
                # A reader identifies an interface without a bus by its name.
                name = f"net{number}"
            self.net_names.add(name)
            net = ET.SubElement(nic, "net", {"name": name} if name else {}, dev=str(number))
            if device.line_rate_gb_per_s > 0:
                net.set("speed", str(max(1, round(device.line_rate_gb_per_s * 8000))))
            if device.network_sums:
                net.set("coll", "1")


def _functions(branch: Branch) -> tuple[Branch, ...]:
    """GPU and ports below a switch that have its bus id, as functions of one card."""
    if branch.device.kind is not DeviceKind.PCIE_SWITCH or len(branch.children) < 2:
        return ()
    own = tuple(
        child
        for child in branch.children
        if child.device.kind is not DeviceKind.PCIE_SWITCH
        and child.device.bus_id
        and child.device.bus_id == branch.device.bus_id
    )
    same_class = all(_same_class(branch.uplink, child.uplink) for child in own)
    gpus = sum(child.device.kind is DeviceKind.GPU for child in own)
    return own if same_class and gpus <= 1 else ()


def _same_class(a: Link | None, b: Link | None) -> bool:
    if a is None or b is None:
        return False
    return a.lanes == b.lanes and bandwidth_class(a) == bandwidth_class(b)


def _bus_ids(trees: HostTrees) -> dict[str, str]:
    """Return bus ids by device: its own if it is valid and unused, else a generated id."""
    bus_ids: dict[str, str] = {}
    used: set[str] = set()
    without_id: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for branch in trees.walk():
        if branch.device.name in seen or branch.device.kind is DeviceKind.CPU:
            continue
        functions = tuple(function.device.name for function in (branch, *_functions(branch)))
        seen.update(functions)
        bus_id = branch.device.bus_id.strip().lower()
        if _BDF.fullmatch(bus_id) and bus_id not in used:
            used.add(bus_id)
            bus_ids |= dict.fromkeys(functions, bus_id)
        else:
            without_id.append(functions)
    free = (f"{0xE000 + n // 256:04x}:{n % 256:02x}:00.0" for n in itertools.count())
    for functions in without_id:
        bus_ids |= dict.fromkeys(functions, next(bus_id for bus_id in free if bus_id not in used))
    return bus_ids


def _cpu_attributes(host: Topology, cpu: Device) -> dict[str, str]:
    """Return the attributes that state the bandwidth to the other CPUs."""
    for link in host.links_from[cpu.name]:
        if link.kind is LinkKind.UPI:
            speed = math.log2(link.bandwidth_gb_per_s)
            return min(_CPU_MODELS, key=lambda make: abs(math.log2(make[0]) - speed))[1]
    return {}
