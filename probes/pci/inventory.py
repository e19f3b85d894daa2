"""`PciInventory`: the PCI functions and network ports of one host, as its system sees them.

Every reader (sysfs, a snapshot of it, hwloc XML, lspci) fills the same inventory. A value that the
source lacks is None, and a value that could not be read is a gap. `probes.pci.records` builds
the topology.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

MAX_FUNCTIONS = 65_536
"""Functions that one PCI domain can have; a source with more is damaged."""
NVIDIA = 0x10DE
"""Vendor id."""
NETWORK, DISPLAY = 0x02, 0x03
"""Base classes of NICs and of GPUs (PCI Code and ID Assignment Specification 1.11)."""
_LINK_LAYERS = {0x0200: "Ethernet", 0x0207: "InfiniBand"}
"""Link layers of NICs by base class and subclass."""


@dataclass(frozen=True, slots=True)
class PcieLink:
    """Rate and width of the link above a function."""

    gt_per_s: float
    """Transfer rate of one lane: 2.5, 5, 8, 16, 32, 64; 0 when unknown."""
    width: int
    """Lanes; 0 when unknown."""


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function: an endpoint or a bridge."""

    address: str
    """Address in lower case, with a domain of at least four digits: `0000:3b:00.0`."""
    root: str
    """Its root bus in sysfs's form, `pci0000:3a`, which belongs to a host bridge."""
    parent: str | None = None
    """Address of the bridge directly above; None on the root bus."""
    class_code: int | None = None
    """Base class, subclass and interface, 24 bits."""
    vendor: int | None = None
    device: int | None = None
    numa_node: int | None = None
    """NUMA node; None when unknown (sysfs: -1)."""
    link: PcieLink | None = None
    """The lesser of the links that this function and the port above it state."""
    window_bytes: int = 0
    """Size of its largest address range (BAR); 0 when unknown."""
    is_virtual: bool = False
    """Whether it is a virtual function (SR-IOV) whose physical function this host shows as well."""

    @property
    def kind(self) -> int:
        """Base class and subclass; 0 when unknown."""
        return (self.class_code or 0) >> 8

    @property
    def base_class(self) -> int:
        """Base class; 0 when unknown."""
        return self.kind >> 8

    @property
    def link_layer(self) -> str:
        """Link layer of a NIC, as in `NicPort`; empty when the class does not show it."""
        return _LINK_LAYERS.get(self.kind, "")


@dataclass(frozen=True, slots=True)
class NicPort:
    """A network port: an RDMA device's port, or a network interface."""

    name: str
    """NCCL's name of it: the RDMA device (`mlx5_0`), else the interface (`eth0`)."""
    function: str | None
    """Address of its PCI function; None without a PCI device."""
    rdma_device: str = ""
    rdma_port: int = 0
    """Port number from 1, as in the kernel; 0 without an RDMA device."""
    interface: str = ""
    """Its network interface, if any."""
    link_layer: str = ""
    """`InfiniBand` or `Ethernet`."""
    speed_gbit_per_s: float | None = None
    """Line rate; None when unknown."""
    active: bool = True
    state: str = ""
    """The system's text for the port's state."""


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node of the host."""

    number: int
    package: int | None = None
    """Socket of its first CPU; None when unknown."""


@dataclass(frozen=True, slots=True)
class CpuModel:
    """CPU model, which determines the bandwidth between sockets; empty and 0 when unknown."""

    arch: str = ""
    """`x86_64`, `ppc64` or `arm64`, as NCCL writes it."""
    vendor: str = ""
    """`GenuineIntel`, `AuthenticAMD`, ..."""
    family: int = 0
    model: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact that could not be read."""

    where: str
    """A path, a device or a tool."""
    what: str
    """The missing fact, the reason, and a remedy: a clause without a full stop."""

    def sentence(self) -> str:
        """Return the gap as a sentence for a topology's notes."""
        return f"{self.where}: {self.what}."


@dataclass(frozen=True)
class PciInventory:
    """Inventory of one host."""

    source: str
    """Its source: a directory or a file."""
    functions: tuple[PciFunction, ...]
    """Functions by address, domain first."""
    ports: tuple[NicPort, ...] = ()
    """Ports by PCI address of the function, then name; ports without a PCI device last."""
    numa_nodes: tuple[NumaNode, ...] = ()
    cpu: CpuModel = CpuModel()
    gaps: tuple[Gap, ...] = ()
    hostname: str = ""

    @cached_property
    def by_address(self) -> dict[str, PciFunction]:
        """Functions by address."""
        return {function.address: function for function in self.functions}
