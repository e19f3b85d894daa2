"""`PciInventory`: the PCI functions and network ports of one host, as its system sees them.

Every reader (sysfs, a snapshot of it, hwloc XML, lspci) fills the same inventory; what a source
does not say is None, and what could not be read is a named gap, so that nobody mistakes silence for
an answer. `probes.pci.records` makes a machine of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class BarRange:
    """One range of addresses a function answers to (a line of `resource`); never empty."""

    index: int
    start: int
    end: int
    """Last address, inclusive."""
    flags: int = 0

    @property
    def size_bytes(self) -> int:
        """Length of the range."""
        return self.end - self.start + 1


@dataclass(frozen=True, slots=True)
class PcieLink:
    """What the link above a function does."""

    gt_per_s: float
    """Transfer rate of one lane: 2.5, 5, 8, 16, 32, 64; 0 when unknown."""
    width: int
    """Lanes; 0 when unknown."""


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function: an endpoint or a bridge."""

    address: str
    """Lower case with the domain first, at least four digits of it: `0000:3b:00.0`."""
    root: str
    """The root bus it hangs below, as sysfs calls it: `pci0000:3a`. A host bridge owns it."""
    parent: str | None = None
    """Address of the bridge directly above; None on the root bus."""
    class_code: int | None = None
    """24 bits: base class, subclass, interface."""
    vendor: int | None = None
    device: int | None = None
    numa_node: int | None = None
    """None when the system does not say (sysfs: -1)."""
    link: PcieLink | None = None
    """The lesser of what this function and the port above it state."""
    bars: tuple[BarRange, ...] = ()
    label: str = ""
    """What a text source calls it; empty for sysfs."""
    is_virtual: bool = False
    """A virtual function (SR-IOV) of a card whose physical function this host shows, too."""


@dataclass(frozen=True, slots=True)
class NicPort:
    """One network port: an RDMA device's port, or a plain network interface."""

    name: str
    """What NCCL calls it: the RDMA device (`mlx5_0`), else the interface (`eth0`)."""
    function: str | None
    """Address of its PCI function; None when it sits at no PCI device."""
    rdma_device: str = ""
    rdma_port: int = 0
    """From 1, as the kernel counts; 0 without an RDMA device."""
    interface: str = ""
    """The network interface that goes with it, if any."""
    link_layer: str = ""
    """`InfiniBand` or `Ethernet`."""
    speed_gbit_per_s: float | None = None
    """None when the port does not say."""
    active: bool = True
    state: str = ""
    """The system's own words on the port's state."""


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node of the host."""

    number: int
    package: int | None = None
    """Socket that holds its first CPU; None when unknown."""


@dataclass(frozen=True, slots=True)
class CpuModel:
    """What decides the speed between sockets; empty and 0 when unknown."""

    arch: str = ""
    """`x86_64`, `ppc64` or `arm64`, as NCCL writes it."""
    vendor: str = ""
    """`GenuineIntel`, `AuthenticAMD`, ..."""
    family: int = 0
    model: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that could not be learnt."""

    where: str
    """A path, a device or a tool."""
    what: str
    """What is not known, why, and what would help: half a sentence without a full stop."""

    def sentence(self) -> str:
        """For a topology's notes."""
        return f"{self.where}: {self.what}."


@dataclass(frozen=True)
class PciInventory:
    """One host."""

    source: str
    """Where it was read: a directory or a file."""
    functions: tuple[PciFunction, ...]
    """By address, domain first."""
    ports: tuple[NicPort, ...] = ()
    """By PCI address of the function, then name; ports at no PCI device last."""
    numa_nodes: tuple[NumaNode, ...] = ()
    cpu: CpuModel = CpuModel()
    gaps: tuple[Gap, ...] = ()
    hostname: str = ""

    @cached_property
    def by_address(self) -> dict[str, PciFunction]:
        """Functions by address."""
        return {function.address: function for function in self.functions}
