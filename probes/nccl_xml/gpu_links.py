"""NVLink, xGMI and C2C of a topology file as links between named devices.

All NVSwitches of a host count as one device, as in NCCL 2.30 src/graph/topo.cc: every GPU spreads
its links over all of them, so one switch with the sum of the links is equivalent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.inputs.messages import shortened
from probes.nccl_xml.records import GpuLinkRecord, GpuRecord
from probes.topology.bandwidth_class import (
    LATENCY_US,
    NVSWITCH_LATENCY_US,
    nvlink_gb_per_s,
    xgmi_gb_per_s,
)
from probes.topology.graph import Link, LinkKind, Provenance

_SWITCH_CLASS = "068000"
_CPU_CLASS = "068001"
"""The bridge between POWER9 and its GPUs; NCCL 2.30 src/graph/topo.cc."""
_ANY_SWITCH = "fffffff:"
"""Prefix of the bus id of a hidden switch (NVML's answer inside a VM)."""

_NVSWITCH_BOARDS = {
    "10de:20b0": (80, 12, "A100-SXM4-40GB"),
    "10de:20b2": (80, 12, "A100-SXM4-80GB"),
    "10de:2330": (90, 18, "H100 SXM5"),
    "10de:2335": (90, 18, "H200 SXM5"),
}
"""Compute capability, links per GPU and name of GPUs on boards of eight with NVSwitch (PCI ID
database; NVIDIA HGX A100, H100 and H200 data sheets). Boards of four have direct links."""
_GPUS_PER_NVSWITCH_BOARD = 8


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """A GPU with its device name."""

    name: str
    host: int
    bus_id: str
    model: str
    cpu: str
    """Name of the CPU above it in the PCIe tree."""
    record: GpuRecord | None


def nvswitch_name(host: int) -> str:
    """Return the name of the only NVSwitch of a host."""
    return f"n{host}/nvswitch0"


def gpu_links(gpus: list[PlacedGpu], notes: list[str]) -> list[Link]:
    """Return the links that the file states, in the order of the GPUs; NVSwitch links both ways."""
    collected = _LinkCounts({(gpu.host, gpu.bus_id): gpu for gpu in gpus})
    for gpu in gpus:
        for link in gpu.record.links if gpu.record else ():
            if link.count:
                collected.add_record(gpu, link)
    collected.write_notes(notes)
    return [link for key in collected.counts for link in collected.links(key)]


def assumed_nvswitch_links(gpus: list[PlacedGpu], notes: list[str]) -> list[Link]:
    """Return NVSwitch links for files of PCI endpoints only, if the GPU models determine them."""
    links: list[Link] = []
    for host in sorted({gpu.host for gpu in gpus}):
        on_host = [gpu for gpu in gpus if gpu.host == host]
        models = {gpu.model for gpu in on_host}
        board = _NVSWITCH_BOARDS.get(models.pop()) if len(models) == 1 else None
        if board is None or len(on_host) != _GPUS_PER_NVSWITCH_BOARD:
            continue
        capability, count, part = board
        notes.append(
            f"The file does not mention NVLink; 8 x {part} come on a board with NVSwitch only, so "
            f"{count} links per GPU are assumed."
        )
        for gpu in on_host:
            bandwidth = count * nvlink_gb_per_s(capability)
            links += _switch_links(gpu.name, host, bandwidth, count, Provenance.ASSUMED)
    if not links:
        notes.append(
            "The file lists PCI endpoints only and does not mention NVLink: GPUs are taken as "
            "connected by PCIe alone; a dump (NCCL_TOPO_DUMP_FILE) of a running job says more."
        )
    return links


def assumed_capability(model: str) -> int:
    """Compute capability of a GPU model by its PCI id; 0 when unknown."""
    board = _NVSWITCH_BOARDS.get(model)
    return board[0] if board else 0


def _switch_links(
    gpu: str, host: int, bandwidth: float, lanes: int, provenance: Provenance
) -> Iterator[Link]:
    for src, dst in ((gpu, nvswitch_name(host)), (nvswitch_name(host), gpu)):
        yield Link(src, dst, LinkKind.NVLINK, bandwidth, NVSWITCH_LATENCY_US, provenance, lanes)


class _LinkCounts:
    """Link counts by (source, target name, kind), in the order of the file."""

    def __init__(self, by_bus_id: dict[tuple[int, str], PlacedGpu]) -> None:
        self.by_bus_id = by_bus_id
        self.gpus = {gpu.name: gpu for gpu in by_bus_id.values()}
        self.counts: dict[tuple[str, str, LinkKind], int] = {}
        self.c2c_gb_per_s: dict[tuple[str, str, LinkKind], float] = {}
        self.switches: dict[str, set[str]] = {}
        self.to_self: list[str] = []
        self.to_unknown: list[str] = []

    def add_record(self, gpu: PlacedGpu, link: GpuLinkRecord) -> None:
        kind = {"nvlink": LinkKind.NVLINK, "xgmi": LinkKind.XGMI, "c2c": LinkKind.C2C}[link.tag]
        if kind is LinkKind.C2C:
            self.add_c2c(gpu, link)
            return
        peer = self.by_bus_id.get((gpu.host, link.target))
        if peer is gpu:
            self.to_self.append(gpu.name)
        elif peer is not None:
            self.add((gpu.name, peer.name, kind), link.count)
        elif link.target_class == _CPU_CLASS:
            self.add((gpu.name, gpu.cpu, kind), link.count)
        elif link.target_class == _SWITCH_CLASS or link.target.startswith(_ANY_SWITCH):
            self.switches.setdefault(gpu.name, set()).add(link.target)
            self.add((gpu.name, nvswitch_name(gpu.host), kind), link.count)
        else:
            self.to_unknown.append(f"{gpu.name} -> {link.target}")

    def add_c2c(self, gpu: PlacedGpu, link: GpuLinkRecord) -> None:
        """C2C leads to the GPU's own CPU; `bw` is MB/s per link (NCCL 2.30 src/graph/topo.cc)."""
        if link.mb_per_s <= 0:
            self.to_unknown.append(f"{gpu.name} (c2c without bw)")
            return
        key = (gpu.name, gpu.cpu, LinkKind.C2C)
        self.add(key, link.count)
        known = self.c2c_gb_per_s.get(key, 0.0)
        self.c2c_gb_per_s[key] = known + link.count * link.mb_per_s / 1000

    def add(self, key: tuple[str, str, LinkKind], count: int) -> None:
        self.counts[key] = self.counts.get(key, 0) + count

    def links(self, key: tuple[str, str, LinkKind]) -> Iterator[Link]:
        """Yield the link of this key, and for a switch or CPU also the reverse link."""
        src, dst, kind = key
        count, capability = self.counts[key], 0
        gpu = self.gpus[src]
        if gpu.record is not None:
            capability = gpu.record.compute_capability
        if kind is LinkKind.C2C:
            bandwidth, provenance = self.c2c_gb_per_s[key], Provenance.SYSFS
        else:
            per_link = xgmi_gb_per_s if kind is LinkKind.XGMI else nvlink_gb_per_s
            bandwidth = count * per_link(capability)
            provenance = Provenance.SPEC if capability else Provenance.ASSUMED
        if dst == nvswitch_name(gpu.host):
            yield from _switch_links(src, gpu.host, bandwidth, count, provenance)
            return
        yield Link(src, dst, kind, bandwidth, LATENCY_US[kind], provenance, count)
        if dst not in self.gpus:
            yield Link(dst, src, kind, bandwidth, LATENCY_US[kind], provenance, count)

    def write_notes(self, notes: list[str]) -> None:
        for (src, dst, kind), count in self.counts.items():
            back = self.counts.get((dst, src, kind), 0)
            if dst in self.gpus and count > back:
                notes.append(
                    f"{src} states {count} {kind} links to {dst}, which states {back} back: "
                    "each direction is taken as stated."
                )
        if self.to_self:
            notes.append(
                f"NVLinks of {shortened(self.to_self)} lead to the GPU itself in the file, so "
                "their other end is not known: they were left out."
            )
        if self.to_unknown:
            notes.append(
                f"Links to devices that the file does not hold were left out: "
                f"{shortened(self.to_unknown)}."
            )
        by_host: dict[int, set[frozenset[str]]] = {}
        for name, targets in self.switches.items():
            by_host.setdefault(self.gpus[name].host, set()).add(frozenset(targets))
        notes.extend(
            f"GPUs of host {host} name different NVSwitches: taken as one fabric, as NCCL does."
            for host, sets in by_host.items()
            if len(sets) > 1
        )
