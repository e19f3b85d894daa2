"""Devices of a machine, links between them, and limits that were measured between two.

Units: bandwidth in GB/s = 1e9 bytes/s per direction, latency in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class DeviceKind(StrEnum):
    """What a device is."""

    GPU = "gpu"
    NIC = "nic"
    PCIE_SWITCH = "pcie_switch"
    CPU = "cpu"
    NVSWITCH = "nvswitch"
    NETWORK_SWITCH = "network_switch"


class LinkKind(StrEnum):
    """What a link is made of."""

    NVLINK = "nvlink"
    C2C = "c2c"
    XGMI = "xgmi"
    PCIE = "pcie"
    UPI = "upi"
    NETWORK = "network"


class Provenance(StrEnum):
    """Where a figure came from, from the weakest evidence to the strongest."""

    ASSUMED = "assumed"
    """Nothing was said; a cautious default was taken and a note says so."""
    SPEC = "spec"
    """Derived from a data sheet: link generation times link count."""
    SYSFS = "sysfs"
    """Reported by the operating system or by NCCL's topology dump."""
    MEASURED = "measured"
    """Measured on the machine itself."""


NETWORK_NODE = -1
"""`Device.node` of a device that belongs to no host (a network switch)."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of the machine."""

    name: str
    """Unique in the topology, e.g. `n0/gpu3`."""
    kind: DeviceKind
    node: int
    """Index of the host it sits in, from 0; `NETWORK_NODE` outside every host."""
    index: int = 0
    """Position among the devices of its kind on its node; GPUs: the local rank."""
    model: str = ""
    """PCI `vendor:device` in lower-case hex without 0x (`10de:20b0`); empty when unknown."""
    bus_id: str = ""
    """PCI bus id; not part of the fingerprint."""
    compute_capability: int = 0
    """GPUs: NVIDIA compute capability times ten (80, 90), AMD's as `probes.topology.gfx_names`
    numbers them (942, 910 for gfx90a); 0 when unknown."""
    line_rate_gb_per_s: float = 0.0
    """NICs: what the port does on the wire, per direction; 0 when unknown."""
    os_name: str = ""
    """NICs: what the operating system calls the port (`mlx5_0`); not part of the fingerprint."""
    memory_bytes: int = 0
    """GPUs: memory; 0 when unknown; not part of the fingerprint."""


@dataclass(frozen=True, slots=True)
class Link:
    """One directed link; a full-duplex cable is two links."""

    src: str
    dst: str
    kind: LinkKind
    bandwidth_gb_per_s: float
    latency_us: float
    provenance: Provenance
    """Where `bandwidth_gb_per_s` came from."""
    lanes: int = 1
    """NVLink or xGMI links bundled in it, PCIe lanes, or between network switches the ports whose
    traffic it was measured to carry."""
    latency_provenance: Provenance = Provenance.ASSUMED
    """Where `latency_us` came from."""
    spread: float = 0.0
    """Of a measured bandwidth: interquartile range over median, of the samples or of the class of
    links that it was taken from; 0 when it was not measured."""


@dataclass(frozen=True, slots=True)
class PairLimit:
    """What one device moved to another when that was measured, where its links promise more.

    Two GPUs below one CPU may each have a full PCIe link, and still exchange half of that, because
    the CPU forwards no faster. No link is slow then; the pair is.
    """

    src: str
    dst: str
    bandwidth_gb_per_s: float
    spread: float = 0.0


def of_kind(devices: Iterable[Device], kind: DeviceKind) -> tuple[Device, ...]:
    """Devices of one kind, by node, then by index."""
    found = (device for device in devices if device.kind is kind)
    return tuple(sorted(found, key=lambda device: (device.node, device.index)))
