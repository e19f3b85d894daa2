"""The PCIe trees of a topology file as slots, with their parents and uplinks.

A slot becomes a device: a GPU, a NIC port, a PCIe switch or a CPU. A PCI device with several of
these (a NIC with two ports, a NIC with a GPU behind it) becomes a PCIe switch with each below it,
because they share its uplink. Bridges without GPUs and NICs below are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from probes.inputs.messages import shortened
from probes.nccl_xml.nics import net_gb_per_s, speed_notes, unattached_nets
from probes.nccl_xml.records import CpuRecord, GpuRecord, NetRecord, PciRecord
from probes.topology.bandwidth_class import (
    DEFAULT_PCIE_MBPS_PER_LANE,
    DEFAULT_PCIE_WIDTH,
    pcie_gb_per_s,
    pcie_generation_mbps,
)
from probes.topology.graph import DeviceKind, Provenance

_GPU_VENDORS = ("", "10de", "1002")
"""NVIDIA, AMD, or unknown; other display controllers, as on server boards, are not GPUs."""


@dataclass(frozen=True, slots=True)
class Uplink:
    """A PCIe connection to the parent."""

    gb_per_s: float
    lanes: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Slot:
    """A future device; `parent` is an index in the list of slots, None for a CPU."""

    kind: DeviceKind
    host: int
    parent: int | None
    uplink: Uplink | None
    pci: PciRecord | None = None
    gpu: GpuRecord | None = None
    net: NetRecord | None = None
    line_rate_gb_per_s: float = 0.0
    cpu: CpuRecord | None = None


def place_slots(cpus: tuple[CpuRecord, ...], notes: list[str]) -> list[Slot]:
    """Return the slots of all hosts, parents before children, in document order."""
    hosts = {host: number for number, host in enumerate(dict.fromkeys(cpu.host for cpu in cpus))}
    records = [record for cpu in cpus for pci in cpu.pcis for record in _below(pci)]
    placement = _Placement(
        has_gpus=any(record.gpu for record in records),
        has_nets=any(record.nets for record in records) or any(cpu.nets for cpu in cpus),
        notes=notes,
    )
    for cpu, nets in zip(cpus, unattached_nets(cpus, notes), strict=True):
        number = placement.add(
            Slot(kind=DeviceKind.CPU, host=hosts[cpu.host], parent=None, uplink=None, cpu=cpu)
        )
        for pci in cpu.pcis:
            placement.place(pci, number)
        for net in nets:
            rate = net_gb_per_s(net)
            # Its bus is unknown, so the port itself is the only limit.
            uplink = Uplink(rate, 1, Provenance.ASSUMED)
            placement.add(placement.port(net, number, uplink, rate))
    placement.write_notes()
    return placement.slots


def _below(pci: PciRecord) -> list[PciRecord]:
    return [pci, *(record for child in pci.children for record in _below(child))]


class _Placement:
    """The slots placed so far, and the assumptions."""

    def __init__(self, *, has_gpus: bool, has_nets: bool, notes: list[str]) -> None:
        self.has_gpus = has_gpus
        self.has_nets = has_nets
        self.notes = notes
        self.slots: list[Slot] = []
        self.speed_assumed: list[str] = []
        self.width_assumed: list[str] = []
        self.slow_bridges: list[str] = []
        self.unknown: list[str] = []
        self.no_model: list[str] = []

    def add(self, slot: Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def port(self, net: NetRecord, parent: int, uplink: Uplink, rate: float) -> Slot:
        host = self.slots[parent].host
        return Slot(DeviceKind.NIC, host, parent, uplink, net=net, line_rate_gb_per_s=rate)

    def place(self, pci: PciRecord, parent: int) -> None:
        """Add the device and those below it, if there is a GPU or NIC among them."""
        is_gpu, nets = self.is_gpu(pci), self.ports(pci)
        children = [child for child in pci.children if self.has_endpoint(child)]
        if not (is_gpu or nets or children):
            if not pci.pci_class and not pci.children:
                self.unknown.append(pci.bus_id)
            return
        if {"vendor", "device"} & set(pci.unreadable):
            self.no_model.append(pci.bus_id)
        uplink = self.uplink(pci)
        switch = Slot(DeviceKind.PCIE_SWITCH, self.slots[parent].host, parent, uplink, pci=pci)
        if is_gpu + len(nets) + len(children) > 1 or children:
            parent = self.add(switch)
            # Inside the device, the uplink is the only known limit.
            uplink = replace(uplink, provenance=Provenance.ASSUMED)
        if is_gpu:
            self.add(
                replace(switch, kind=DeviceKind.GPU, parent=parent, uplink=uplink, gpu=pci.gpu)
            )
        for net in nets:
            rate = net_gb_per_s(net) if self.has_nets else 0.0
            self.add(replace(self.port(net, parent, uplink, rate), pci=pci))
        for child in pci.children:
            self.place(child, parent)

    def is_gpu(self, pci: PciRecord) -> bool:
        """Whether it has a `<gpu>`, or the class of a GPU in files without any `<gpu>`."""
        if self.has_gpus:
            return pci.gpu is not None
        return pci.pci_class[:2] in ("03", "12") and pci.vendor in _GPU_VENDORS

    def ports(self, pci: PciRecord) -> tuple[NetRecord, ...]:
        """Its `<net>` elements, or one port by class in files without any `<net>`."""
        if self.has_nets or not pci.pci_class.startswith("02"):
            return pci.nets
        return (NetRecord(name="", dev=None, speed_mbps=None),)

    def has_endpoint(self, pci: PciRecord) -> bool:
        return any(self.is_gpu(record) or self.ports(record) for record in _below(pci))

    def uplink(self, pci: PciRecord) -> Uplink:
        """Bandwidth of the device's link; records the assumptions."""
        uplink = self.effective(pci)
        if uplink.gb_per_s > _stated(pci).gb_per_s:
            self.slow_bridges.append(pci.bus_id)
            return uplink
        if pcie_generation_mbps(pci.link_speed) is None:
            self.speed_assumed.append(pci.bus_id)
        if not pci.link_width:
            self.width_assumed.append(pci.bus_id)
        return uplink

    def effective(self, pci: PciRecord) -> Uplink:
        """The stated link, or for a bridge slower than a device below it, that device's link.

        Emulated bridges of virtual machines and management ports of switches state gen 1 or 2,
        which is not their bandwidth if a device of gen 3 or later is below.
        """
        stated = _stated(pci)
        if _mbps_per_lane(pci) >= DEFAULT_PCIE_MBPS_PER_LANE:
            return stated
        below = [self.effective(child) for child in pci.children if self.has_endpoint(child)]
        fast = [
            replace(uplink, provenance=Provenance.ASSUMED)
            for uplink in below
            if uplink.gb_per_s > stated.gb_per_s
            and uplink.gb_per_s >= pcie_gb_per_s(DEFAULT_PCIE_MBPS_PER_LANE, uplink.lanes)
        ]
        return max([stated, *fast], key=lambda uplink: uplink.gb_per_s)

    def write_notes(self) -> None:
        """Add a note for each kind of assumption, with the devices."""
        if self.has_nets:
            self.notes += speed_notes([slot.net for slot in self.slots if slot.net is not None])
        for assumption, bus_ids in (
            ("do not state their PCIe speed: 8 GT/s assumed, as NCCL does", self.speed_assumed),
            ("do not state their PCIe width: 16 lanes assumed, as NCCL does", self.width_assumed),
            (
                "state less than PCIe gen 3 above faster devices: taken as the fastest of those",
                self.slow_bridges,
            ),
            ("have neither a readable class nor content and were left out", self.unknown),
            ("state a vendor or device that is not a PCI id: model unknown", self.no_model),
        ):
            if bus_ids:
                self.notes.append(f"PCI devices that {assumption}: {shortened(bus_ids)}.")


def _mbps_per_lane(pci: PciRecord) -> int:
    return pcie_generation_mbps(pci.link_speed) or DEFAULT_PCIE_MBPS_PER_LANE


def _stated(pci: PciRecord) -> Uplink:
    """The link as the device states it, with NCCL's defaults for missing values."""
    width = min(pci.link_width, 32) or DEFAULT_PCIE_WIDTH
    is_stated = pcie_generation_mbps(pci.link_speed) is not None and pci.link_width > 0
    return Uplink(
        gb_per_s=pcie_gb_per_s(_mbps_per_lane(pci), width),
        lanes=width,
        provenance=Provenance.SYSFS if is_stated else Provenance.ASSUMED,
    )
