"""A topology from records of PCI trees: `assemble`, for NCCL's files and for what a host shows.

Devices are named by host and place: `n0/gpu3`, `n0/nic0`, `n0/cpu1`, `n0/pcie2`, `n0/nvswitch0`.
GPUs count in rank order (else by CUDA device, else by bus id, which is CUDA's order among equal
GPUs), NICs in NCCL's order. What the records leave open is assumed as NCCL assumes it, and said in
the topology's notes. One machine gives one topology, whichever way it was looked at.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from probes.errors import InvalidTopologyError
from probes.inputs.printable import printable
from probes.nccl_xml.gpu_links import (
    PlacedGpu,
    assumed_capability,
    assumed_nvswitch_links,
    gpu_links,
    nvswitch_name,
)
from probes.nccl_xml.nics import shortened
from probes.nccl_xml.pcie import Slot, place_slots
from probes.nccl_xml.records import CpuRecord, PciRecord
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology
from probes.topology.link_figures import LATENCY_US, cpu_link_gb_per_s
from probes.topology.validation import check_structure

MAX_CPUS_PER_HOST = 256

_NAMES = {
    DeviceKind.GPU: "gpu",
    DeviceKind.NIC: "nic",
    DeviceKind.PCIE_SWITCH: "pcie",
    DeviceKind.CPU: "cpu",
}


def assemble(
    records: Sequence[CpuRecord], name: str, source: str, told: Sequence[str] = ()
) -> Topology:
    """Put a machine together; one without GPUs is a machine, too.

    Args:
        records: the CPUs (NUMA nodes) of all hosts, with what hangs below each.
        name: of the topology.
        source: what to call the records in an error, usually a path.
        told: notes made while the records were read; they come first in the topology's.

    Raises:
        InvalidTopologyError: the machine cannot exist, for example two GPUs of one bus id.
    """
    notes = list(told)
    cpus = _on_known_hosts(tuple(records), notes)
    _check_cpus(cpus, source)
    slots = place_slots(cpus, notes)
    _check_bus_ids(slots, source, notes)
    devices = _devices(slots, source, notes)
    gpus = _placed_gpus(slots, devices)
    told_links = any(gpu.record for gpu in gpus) or not gpus
    fast = gpu_links(gpus, notes) if told_links else assumed_nvswitch_links(gpus, notes)
    reached = {link.dst for link in fast}
    switches = [
        Device(nvswitch_name(host), DeviceKind.NVSWITCH, host)
        for host in sorted({gpu.host for gpu in gpus})
        if nvswitch_name(host) in reached
    ]
    links = [*fast, *_pcie_links(slots, devices, notes), *_cpu_links(slots, devices)]
    order = {kind: place for place, kind in enumerate(DeviceKind)}
    topology = Topology(
        name=printable(name),
        devices=tuple(
            sorted([*devices, *switches], key=lambda d: (d.node, order[d.kind], d.index))
        ),
        links=tuple(links),
        notes=tuple(notes),
    )
    check_structure(topology)
    return topology


def _on_known_hosts(cpus: tuple[CpuRecord, ...], notes: list[str]) -> tuple[CpuRecord, ...]:
    """CPUs without a host_hash: of the one host that has a hash, else together a host of theirs."""
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
    """All CPUs of a host are linked to each other, so their number must stay within reason."""
    most = max(Counter(cpu.host for cpu in cpus).values(), default=0)
    if most > MAX_CPUS_PER_HOST:
        raise InvalidTopologyError(
            f"{source}: {most:,} <cpu> elements on one host, at most {MAX_CPUS_PER_HOST} are read"
        )


def _check_bus_ids(slots: Sequence[Slot], source: str, notes: list[str]) -> None:
    """GPUs and NICs are told apart by bus id; of two bridges with one id both are believed."""
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
    """A device for every slot, in the order of the slots."""
    groups: dict[tuple[int, DeviceKind], list[int]] = {}
    for place, slot in enumerate(slots):
        groups.setdefault((slot.host, slot.kind), []).append(place)
    numbers: dict[int, int] = {}
    for (_, kind), group in groups.items():
        mine = group
        if kind is DeviceKind.GPU:
            mine = _in_rank_order(group, slots, source, notes)
        elif kind is DeviceKind.NIC:
            nets = [slots[place].net for place in group]
            mine = _by_distinct(group, [net.dev if net else None for net in nets])
        numbers.update({place: number for number, place in enumerate(mine)})
    return [_device(slot, numbers[place]) for place, slot in enumerate(slots)]


def _device(slot: Slot, index: int) -> Device:
    model = slot.pci.model if slot.pci is not None else ""
    capability = 0
    if slot.kind is DeviceKind.GPU:
        capability = slot.gpu.compute_capability if slot.gpu else assumed_capability(model)
    return Device(
        name=f"n{slot.host}/{_NAMES[slot.kind]}{index}",
        kind=slot.kind,
        node=slot.host,
        index=index,
        model=model,
        bus_id=printable(slot.pci.bus_id) if slot.pci is not None else "",
        compute_capability=capability,
        line_rate_gb_per_s=slot.line_rate_gb_per_s,
        os_name=printable(slot.net.name) if slot.net is not None else "",
    )


def _in_rank_order(
    places: list[int], slots: Sequence[Slot], source: str, notes: list[str]
) -> list[int]:
    records = [slots[place].gpu for place in places]
    devs = [record.dev if record else None for record in records]
    for dev, count in Counter(dev for dev in devs if dev is not None).items():
        if count > 1:
            raise InvalidTopologyError(
                f"{source}: {count} GPUs of one host with dev='{dev}'; number each differently"
            )
    if any(records):
        ranks = [record.rank if record else None for record in records]
        distinct = None not in ranks and len(set(ranks)) == len(ranks)
        return _by_distinct(places, ranks if distinct else devs)
    bus_ids = {place: pci.bus_id for place in places if (pci := slots[place].pci) is not None}
    ordered = sorted(places, key=bus_ids.__getitem__)
    if ordered != places:
        notes.append("The file gives the GPUs no ranks: they are numbered by bus id, as CUDA does.")
    return ordered


def _by_distinct(places: list[int], keys: list[int | None]) -> list[int]:
    """Sorted by key if every place has one of its own, else as they are."""
    known = [key for key in keys if key is not None]
    if len(set(known)) < len(places):
        return places
    return [place for _, place in sorted(zip(known, places, strict=True))]


def _placed_gpus(slots: Sequence[Slot], devices: Sequence[Device]) -> list[PlacedGpu]:
    def cpu_above(place: int) -> str:
        parent = slots[place].parent
        return devices[place].name if parent is None else cpu_above(parent)

    placed = [
        PlacedGpu(
            name=device.name,
            host=slot.host,
            bus_id=slot.pci.bus_id if slot.pci is not None else "",
            model=device.model,
            cpu=cpu_above(place),
            record=slot.gpu,
        )
        for place, (slot, device) in enumerate(zip(slots, devices, strict=True))
        if slot.kind is DeviceKind.GPU
    ]
    by_name = {device.name: device for device in devices}
    return sorted(placed, key=lambda gpu: (gpu.host, by_name[gpu.name].index))


def _pcie_links(slots: Sequence[Slot], devices: Sequence[Device], notes: list[str]) -> list[Link]:
    """Uplinks both ways, then direct links between switches (`<pcilink>`)."""
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
    """NCCL takes such a link as free (2.30 src/graph/topo.cc); here it is as wide as an uplink."""
    switches = {
        (slot.host, slot.pci.bus_id): place
        for place, slot in enumerate(slots)
        if slot.kind is DeviceKind.PCIE_SWITCH and slot.pci is not None
    }
    latency = LATENCY_US[LinkKind.PCIE]
    links: dict[tuple[str, str], Link] = {}
    for (host, _), place in switches.items():
        pci, uplink = slots[place].pci, slots[place].uplink
        for target in pci.pci_links if pci is not None else ():
            other = switches.get((host, target))
            if other is None or other == place or uplink is None:
                continue
            for a, b in ((place, other), (other, place)):
                src, dst = devices[a].name, devices[b].name
                bandwidth, lanes = uplink.gb_per_s, uplink.lanes
                link = Link(src, dst, LinkKind.PCIE, bandwidth, latency, Provenance.ASSUMED, lanes)
                links.setdefault((src, dst), link)
    if links:
        notes.append("Direct links between PCIe switches are assumed as fast as their uplinks.")
    return list(links.values())


def _cpu_links(slots: Sequence[Slot], devices: Sequence[Device]) -> list[Link]:
    """Every pair of CPUs of a host, as NCCL connects them."""
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
            Link(device.name, other.name, LinkKind.UPI, bandwidth, latency, provenance)
            for _, other in cpus[device.node]
            if other.name != device.name
        ]
    return links
