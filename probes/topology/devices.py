"""Devices of a machine, links between them, and measured limits of device pairs.

Units: bandwidth in GB/s = 1e9 bytes/s per direction, latency in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class DeviceKind(StrEnum):
    """Kind of a device."""

    GPU = "gpu"
    NIC = "nic"
    PCIE_SWITCH = "pcie_switch"
    CPU = "cpu"
    NVSWITCH = "nvswitch"
    NETWORK_SWITCH = "network_switch"


class LinkKind(StrEnum):
    """Medium of a link."""

    NVLINK = "nvlink"
    C2C = "c2c"
    XGMI = "xgmi"
    PCIE = "pcie"
    UPI = "upi"
    NETWORK = "network"


class Provenance(StrEnum):
    """Origin of a figure, from the weakest evidence to the strongest."""

    ASSUMED = "assumed"
    """A cautious default, stated in a note, because the source gives no figure."""
    SPEC = "spec"
    """Computed from a data sheet: link generation times link count."""
    SYSFS = "sysfs"
    """Reported by the operating system or by NCCL's topology dump."""
    MEASURED = "measured"
    """Measured on the machine itself."""


NETWORK_NODE = -1
"""`Device.node` of a device that belongs to no host (a network switch)."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the machine."""

    name: str
    """Unique in the topology, e.g. `n0/gpu3`."""
    kind: DeviceKind
    node: int
    """Index of its node, from 0: a host, or the hosts of an NVLink domain
    (`probes.topology.domains`); `NETWORK_NODE` outside every host."""
    index: int = 0
    """Position among the devices of its kind on its node; GPUs: the local rank."""
    model: str = ""
    """PCI `vendor:device` in lower-case hex without 0x (`10de:20b0`); empty when unknown."""
    bus_id: str = ""
    """PCI bus id; not part of the fingerprint."""
    compute_capability: int = 0
    """GPUs: NVIDIA compute capability times ten (80, 90), AMD's as
    `probes.topology.figure_text` numbers them (942, 910 for gfx90a); 0 when unknown."""
    line_rate_gb_per_s: float = 0.0
    """NICs: line rate of the port, per direction; 0 when unknown."""
    line_rate_provenance: Provenance = Provenance.SYSFS
    """Origin of it; not part of the fingerprint."""
    os_name: str = ""
    """NICs: the operating system's name of the port (`mlx5_0`); not part of the fingerprint."""
    memory_bytes: int = 0
    """GPUs: size of the memory; 0 when unknown; not part of the fingerprint."""
    host_in_node: int = 0
    """Number of its host among those of its node; NVSwitches: of the first one that has it."""
    lacks_multicast: bool = False
    """GPUs: whether it is known that the driver offers no multicast through NVSwitches, as in some
    virtual machines; not part of the fingerprint."""
    network_sums: bool = False
    """NICs: whether NCCL's network plugin lets the switches behind it sum, as SHARP does; not part
    of the fingerprint."""


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link; a full-duplex cable is two links."""

    src: str
    dst: str
    kind: LinkKind
    bandwidth_gb_per_s: float
    latency_us: float
    provenance: Provenance
    """Origin of `bandwidth_gb_per_s`."""
    lanes: int = 1
    """Number of NVLink or xGMI links bundled, of PCIe lanes, or, between network switches, of ports
    whose traffic the link was measured to carry."""
    latency_provenance: Provenance = Provenance.ASSUMED
    """Origin of `latency_us`."""
    spread: float = 0.0
    """Interquartile range over median of the bandwidth's samples, or of its class of links; 0 when
    it was not measured."""


@dataclass(frozen=True, slots=True)
class PairLimit:
    """Measured bandwidth from one device to another, where their links would allow more.

    Two GPUs below one CPU may each have a full PCIe link and still exchange half of its bandwidth,
    because the CPU forwards no faster: the pair is slow, not a link.
    """

    src: str
    dst: str
    bandwidth_gb_per_s: float
    spread: float = 0.0


def of_kind(devices: Iterable[Device], kind: DeviceKind) -> tuple[Device, ...]:
    """Return the devices of one kind, by node, then by index."""
    found = (device for device in devices if device.kind is kind)
    return tuple(sorted(found, key=lambda device: (device.node, device.index)))
