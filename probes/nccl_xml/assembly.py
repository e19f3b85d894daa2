"""A topology from records of PCI trees: `assemble`, for NCCL's files and for probed hosts.

`parse_nccl_xml` reads a file that NCCL wrote (NCCL_TOPO_DUMP_FILE).

Devices are named by host and index: `n0/gpu3`, `n0/nic0`, `n0/cpu1`, `n0/pcie2`, `n0/nvswitch0`.
GPUs are in rank order (else by CUDA device, else by bus id, which is CUDA's order among equal
GPUs), NICs in NCCL's order. Missing values are assumed as by NCCL and stated in the topology's
notes. A machine gives the same topology from every source.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from probes.inputs.messages import printable, shortened
from probes.nccl_xml.gpu_links import (
    PlacedGpu,
    assumed_capability,
    assumed_nvswitch_links,
    gpu_links,
    nvswitch_name,
)
from probes.nccl_xml.nics import states_speed
from probes.nccl_xml.pcie import Slot, place_slots
from probes.nccl_xml.records import CpuRecord, PciRecord, read_records
from probes.topology.bandwidth_class import LATENCY_US, cpu_link_gb_per_s
from probes.topology.domains import joined
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology
from probes.topology.validation import check_structure
from tuccl.errors import InvalidTopologyError, MachineError


def parse_nccl_xml(text: str, source: str) -> Topology:
    """Parse a topology file of NCCL or RCCL; the stem of `source`, its path, names the topology.

    Raises:
        MachineError: another kind of file, malformed, or without GPUs.
        InvalidTopologyError: the machine cannot exist, for example two GPUs of one bus id.
    """
    notes: list[str] = []
    records = read_records(text, source, notes)
    topology = assemble(records, PurePath(source).stem, source, notes)
    if not topology.gpus:
        raise MachineError(f"{source}: {_reason_without_gpu(records)}")
    return topology


def _reason_without_gpu(cpus: Sequence[CpuRecord]) -> str:
    def lacks_class(pci: PciRecord) -> bool:
        return not pci.pci_class or any(lacks_class(child) for child in pci.children)

    if any(lacks_class(pci) for cpu in cpus for pci in cpu.pcis):
        return (
            "its <pci> elements have no readable class, so nothing says which are GPUs; add class "
            "attributes (0x030200 for a GPU), or give a file that NCCL_TOPO_DUMP_FILE wrote"
        )
    return "there is no GPU in this topology; give one with two or more"


MAX_CPUS_PER_HOST = 256

_NAMES = {
    DeviceKind.GPU: "gpu",
    DeviceKind.NIC: "nic",
    DeviceKind.PCIE_SWITCH: "pcie",
    DeviceKind.CPU: "cpu",
}


def assemble(
    records: Sequence[CpuRecord], name: str, source: str, reader_notes: Sequence[str] = ()
) -> Topology:
    """Build a topology from the CPUs of all hosts and the PCI trees below each; it may have no GPU.

    `source` names the records in errors. The topology's notes begin with `reader_notes`.

    Raises:
        InvalidTopologyError: the machine cannot exist, for example two GPUs of one bus id.
    """
    notes = list(reader_notes)
    cpus = _with_hosts(tuple(records), notes)
    _check_cpus(cpus, source)
    slots = place_slots(cpus, notes)
    _check_bus_ids(slots, source, notes)
    devices = _devices(slots, source, notes)
    gpus = _placed_gpus(slots, devices)
    has_links = any(gpu.record for gpu in gpus) or not gpus
    fast = gpu_links(gpus, notes) if has_links else assumed_nvswitch_links(gpus, notes)
    reached = {link.dst for link in fast}
    switches = [
        Device(nvswitch_name(host), DeviceKind.NVSWITCH, host)
        for host in sorted({gpu.host for gpu in gpus})
        if nvswitch_name(host) in reached
    ]
    links = [*fast, *_pcie_links(slots, devices, notes), *_cpu_links(slots, devices)]
    order = {kind: position for position, kind in enumerate(DeviceKind)}
    topology = Topology(
        name=printable(name),
        devices=tuple(
            sorted([*devices, *switches], key=lambda d: (d.node, order[d.kind], d.index))
        ),
        links=tuple(links),
        notes=tuple(notes),
    )
    check_structure(topology)
    return _with_domain(topology, [device.node for device in switches])


def _with_domain(topology: Topology, hosts: Sequence[int]) -> Topology:
    """Return the topology with hosts that have NVSwitches as one NVLink domain.

    NCCL writes several hosts into one file where it found them in one domain, and reads all their
    NVSwitches as one (`comm->MNNVL` and ncclTopoAddNvLinks, NCCL 2.30 src/graph/topo.cc).
    """
    if len(hosts) == 1 or not hosts:
        return topology
    note = (
        f"The file has {len(hosts)} hosts with NVSwitches: taken as one NVLink domain, "
        "as NCCL takes them."
    )
    return joined(replace(topology, notes=(*topology.notes, note)), [hosts])


def _with_hosts(cpus: tuple[CpuRecord, ...], notes: list[str]) -> tuple[CpuRecord, ...]:
    """Assign CPUs without host_hash to the only host that has one, else to a host of their own."""
    hosts = {cpu.host for cpu in cpus if cpu.host}
    silent = sum(1 for cpu in cpus if not cpu.host)
    if not hosts or not silent:
        return cpus
    if len(hosts) > 1:
        notes.append(
            f"<cpu> elements without host_hash beside {len(hosts)} hosts that have one ({silent}): "
            "taken as one more host."
        )
        return cpus
    notes.append(f"<cpu> elements without host_hash ({silent}): taken as of the one host that has.")
    host = hosts.pop()
    return tuple(replace(cpu, host=host) for cpu in cpus)


def _check_cpus(cpus: tuple[CpuRecord, ...], source: str) -> None:
    """Limit the CPUs of a host, which are all linked to each other."""
    count = max(Counter(cpu.host for cpu in cpus).values(), default=0)
    if count > MAX_CPUS_PER_HOST:
        raise InvalidTopologyError(
            f"{source}: {count:,} <cpu> elements on one host, at most {MAX_CPUS_PER_HOST} are read"
        )


def _check_bus_ids(slots: Sequence[Slot], source: str, notes: list[str]) -> None:
    """Check that GPUs and NICs have different bus ids; bridges may share one."""
    endpoints: dict[tuple[int, str], PciRecord] = {}
    bridges = Counter[tuple[int, str]]()
    for slot in slots:
        if slot.pci is None:
            continue
        key = (slot.host, slot.pci.bus_id)
        if slot.kind is DeviceKind.PCIE_SWITCH:
            bridges[key] += 1
        elif endpoints.setdefault(key, slot.pci) is not slot.pci:
            raise InvalidTopologyError(
                f"{source}: two devices with bus id {slot.pci.bus_id!a:.40}; a bus id names "
                "one GPU or NIC, remove or renumber one"
            )
    repeated = [bus_id for (_, bus_id), count in bridges.items() if count > 1]
    if repeated:
        notes.append(f"PCIe switches that share a bus id were kept apart: {shortened(repeated)}.")


def _devices(slots: Sequence[Slot], source: str, notes: list[str]) -> list[Device]:
    """Return a device for every slot, in the order of the slots."""
    groups: dict[tuple[int, DeviceKind], list[int]] = {}
    for index, slot in enumerate(slots):
        groups.setdefault((slot.host, slot.kind), []).append(index)
    numbers: dict[int, int] = {}
    for (_, kind), group in groups.items():
        ordered = group
        if kind is DeviceKind.GPU:
            ordered = _in_rank_order(group, slots, source, notes)
        elif kind is DeviceKind.NIC:
            nets = [slots[index].net for index in group]
            ordered = _by_distinct(group, [net.dev if net else None for net in nets])
        numbers.update({index: number for number, index in enumerate(ordered)})
    return [_device(slot, numbers[index]) for index, slot in enumerate(slots)]


def _device(slot: Slot, number: int) -> Device:
    model = slot.pci.model if slot.pci is not None else ""
    capability = 0
    if slot.kind is DeviceKind.GPU:
        capability = slot.gpu.compute_capability if slot.gpu else assumed_capability(model)
    return Device(
        name=f"n{slot.host}/{_NAMES[slot.kind]}{number}",
        kind=slot.kind,
        node=slot.host,
        index=number,
        model=model,
        bus_id=printable(slot.pci.bus_id) if slot.pci is not None else "",
        compute_capability=capability,
        line_rate_gb_per_s=slot.line_rate_gb_per_s,
        line_rate_provenance=Provenance.SYSFS
        if slot.net is None or states_speed(slot.net)
        else Provenance.ASSUMED,
        os_name=printable(slot.net.name) if slot.net is not None else "",
        lacks_multicast=slot.gpu is not None and slot.gpu.lacks_multicast,
        network_sums=slot.net is not None and slot.net.network_sums,
    )


def _in_rank_order(
    indices: list[int], slots: Sequence[Slot], source: str, notes: list[str]
) -> list[int]:
    records = [slots[index].gpu for index in indices]
    devs = [record.dev if record else None for record in records]
    for dev, count in Counter(dev for dev in devs if dev is not None).items():
        if count > 1:
            raise InvalidTopologyError(
                f"{source}: {count} GPUs of one host with dev='{dev}'; number each differently"
            )
    if any(records):
        ranks = [record.rank if record else None for record in records]
        distinct = None not in ranks and len(set(ranks)) == len(ranks)
        return _by_distinct(indices, ranks if distinct else devs)
    bus_ids = {index: pci.bus_id for index in indices if (pci := slots[index].pci) is not None}
    ordered = sorted(indices, key=bus_ids.__getitem__)
    if ordered != indices:
        notes.append("The file gives the GPUs no ranks: they are numbered by bus id, as CUDA does.")
    return ordered


def _by_distinct(indices: list[int], keys: list[int | None]) -> list[int]:
    """Sort by key if all keys are known and different; else keep the order."""
    known = [key for key in keys if key is not None]
    if len(set(known)) < len(indices):
        return indices
    return [index for _, index in sorted(zip(known, indices, strict=True))]


def _placed_gpus(slots: Sequence[Slot], devices: Sequence[Device]) -> list[PlacedGpu]:
    def cpu_above(index: int) -> str:
        parent = slots[index].parent
        return devices[index].name if parent is None else cpu_above(parent)

    placed = [
        PlacedGpu(
            name=device.name,
            host=slot.host,
            bus_id=slot.pci.bus_id if slot.pci is not None else "",
            model=device.model,
            cpu=cpu_above(index),
            record=slot.gpu,
        )
        for index, (slot, device) in enumerate(zip(slots, devices, strict=True))
        if slot.kind is DeviceKind.GPU
    ]
    by_name = {device.name: device for device in devices}
    return sorted(placed, key=lambda gpu: (gpu.host, by_name[gpu.name].index))


def _pcie_links(slots: Sequence[Slot], devices: Sequence[Device], notes: list[str]) -> list[Link]:
    """Return uplinks both ways, then direct links between switches (`<pcilink>`)."""
    links = []
    latency = LATENCY_US[LinkKind.PCIE]
    for slot, device in zip(slots, devices, strict=True):
        if slot.parent is None or slot.uplink is None:
            continue
        up, parent = slot.uplink, devices[slot.parent].name
        for src, dst in ((device.name, parent), (parent, device.name)):
            links.append(
                Link(src, dst, LinkKind.PCIE, up.gb_per_s, latency, up.provenance, up.lanes)
            )
    return links + _switch_to_switch_links(slots, devices, notes)


def _switch_to_switch_links(
    slots: Sequence[Slot], devices: Sequence[Device], notes: list[str]
) -> list[Link]:
    """Return direct links, as wide as uplinks; NCCL 2.30 src/graph/topo.cc takes them as free."""
    switches = {
        (slot.host, slot.pci.bus_id): index
        for index, slot in enumerate(slots)
        if slot.kind is DeviceKind.PCIE_SWITCH and slot.pci is not None
    }
    latency = LATENCY_US[LinkKind.PCIE]
    links: dict[tuple[str, str], Link] = {}
    for (host, _), index in switches.items():
        pci, uplink = slots[index].pci, slots[index].uplink
        for target in pci.pci_links if pci is not None else ():
            peer = switches.get((host, target))
            if peer is None or peer == index or uplink is None:
                continue
            for a, b in ((index, peer), (peer, index)):
                src, dst = devices[a].name, devices[b].name
                bandwidth, lanes = uplink.gb_per_s, uplink.lanes
                link = Link(src, dst, LinkKind.PCIE, bandwidth, latency, Provenance.ASSUMED, lanes)
                links.setdefault((src, dst), link)
    if links:
        notes.append("Direct links between PCIe switches are assumed as fast as their uplinks.")
    return list(links.values())


def _cpu_links(slots: Sequence[Slot], devices: Sequence[Device]) -> list[Link]:
    """Return links between all CPUs of a host, as NCCL connects them."""
    cpus: dict[int, list[tuple[CpuRecord, Device]]] = {}
    for slot, device in zip(slots, devices, strict=True):
        if slot.cpu is not None:
            cpus.setdefault(slot.host, []).append((slot.cpu, device))
    latency = LATENCY_US[LinkKind.UPI]
    links = []
    for record, device in itertools.chain.from_iterable(cpus.values()):
        bandwidth = cpu_link_gb_per_s(record.arch, record.vendor, record.family, record.model)
        provenance = Provenance.SPEC if record.arch else Provenance.ASSUMED
        links += [
            Link(device.name, peer.name, LinkKind.UPI, bandwidth, latency, provenance)
            for _, peer in cpus[device.node]
            if peer.name != device.name
        ]
    return links
