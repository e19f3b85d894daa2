"""`Topology`: the machine as a directed graph of typed devices and typed links.

Everything to the right of `probes` sees a machine through this module only. A topology is a plain
immutable value; validation lives in `probes.topology.validation`, the JSON form in
`probes.topology.json_form`, the identity of a machine in `probes.topology.fingerprint`, and routes
between GPUs in `probes.topology.paths`.

Units: bandwidth in GB/s = 1e9 bytes/s per direction, latency in microseconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx


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


@dataclass(frozen=True)
class Topology:
    """A machine: devices, links and the notes made while it was read."""

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What the reader had to assume, one sentence each; not part of the fingerprint."""
    hosts: tuple[str, ...] = ()
    """Names of the hosts by node index where they are known; not part of the fingerprint."""
    limits: tuple[PairLimit, ...] = ()
    """Pairs of devices of one host that measured slower than their links."""

    @cached_property
    def gpus(self) -> tuple[Device, ...]:
        """GPUs in rank order: by node, then by local rank."""
        return self._of_kind(DeviceKind.GPU)

    @cached_property
    def nics(self) -> tuple[Device, ...]:
        """NICs (one per port) by node, then by index."""
        return self._of_kind(DeviceKind.NIC)

    @cached_property
    def node_count(self) -> int:
        """Number of hosts that hold at least one GPU."""
        return len({gpu.node for gpu in self.gpus})

    @cached_property
    def device(self) -> dict[str, Device]:
        """Devices by name."""
        return {device.name: device for device in self.devices}

    @cached_property
    def node_of_rank(self) -> tuple[int, ...]:
        """Host index of every rank, renumbered 0, 1, ... in rank order."""
        order = {node: i for i, node in enumerate(sorted({gpu.node for gpu in self.gpus}))}
        return tuple(order[gpu.node] for gpu in self.gpus)

    @cached_property
    def ranks_per_node(self) -> int:
        """GPUs on every host; 0 when hosts differ."""
        counts = set(Counter(self.node_of_rank).values())
        return counts.pop() if len(counts) == 1 else 0

    @cached_property
    def links_from(self) -> dict[str, tuple[Link, ...]]:
        """Links by the device they leave; every device has an entry."""
        leaving: dict[str, list[Link]] = {device.name: [] for device in self.devices}
        for link in self.links:
            leaving.setdefault(link.src, []).append(link)
        return {name: tuple(links) for name, links in leaving.items()}

    @cached_property
    def links_to(self) -> dict[str, tuple[Link, ...]]:
        """Links by the device they reach; every device has an entry."""
        reaching: dict[str, list[Link]] = {device.name: [] for device in self.devices}
        for link in self.links:
            reaching.setdefault(link.dst, []).append(link)
        return {name: tuple(links) for name, links in reaching.items()}

    @cached_property
    def links_between(self) -> dict[tuple[str, str], tuple[Link, ...]]:
        """Links by (src, dst); a pair without a link has no entry."""
        between: dict[tuple[str, str], list[Link]] = {}
        for link in self.links:
            between.setdefault((link.src, link.dst), []).append(link)
        return {pair: tuple(links) for pair, links in between.items()}

    @cached_property
    def limit_between(self) -> dict[tuple[str, str], PairLimit]:
        """Measured limits by (src, dst)."""
        return {(limit.src, limit.dst): limit for limit in self.limits}

    @cached_property
    def graph(self) -> nx.MultiDiGraph[str]:
        """The same as a networkx graph; node attribute `device`, edge attribute `link`."""
        import networkx as nx  # noqa: PLC0415 - half of what starting a worker would cost

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=self.name)
        for device in self.devices:
            graph.add_node(device.name, device=device)
        for link in self.links:
            graph.add_edge(link.src, link.dst, link=link)
        return graph

    def fingerprint(self) -> str:
        """Identity of the machine; see `probes.topology.fingerprint`."""
        from probes.topology.fingerprint import fingerprint  # noqa: PLC0415 - that module imports this one

        return fingerprint(self)

    def _of_kind(self, kind: DeviceKind) -> tuple[Device, ...]:
        found = (device for device in self.devices if device.kind is kind)
        return tuple(sorted(found, key=lambda device: (device.node, device.index)))
