"""`Topology`: the machine as a directed graph of typed devices and typed links.

The packages after `probes` see a machine through this module only. A topology is an immutable
value; validation is in `probes.topology.validation`, the JSON form in
`probes.topology.json_form`, the identity of a machine in `probes.topology.fingerprint`,
and paths between GPUs in `probes.topology.paths`.

Units: bandwidth in GB/s = 1e9 bytes/s per direction, latency in microseconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from probes.topology.devices import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    PairLimit,
    Provenance,
    of_kind,
)

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "NETWORK_NODE",
    "Device",
    "DeviceKind",
    "Link",
    "LinkKind",
    "PairLimit",
    "Provenance",
    "Topology",
]


@dataclass(frozen=True)
class Topology:
    """A machine: devices, links and the reader's notes."""

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Assumptions of the reader, one sentence each; not part of the fingerprint."""
    hosts: tuple[str, ...] = ()
    """Known names of the hosts, by node index, those of a domain joined; not part of the
    fingerprint."""
    limits: tuple[PairLimit, ...] = ()
    """Pairs of devices of one host that measured slower than their links allow."""

    @cached_property
    def gpus(self) -> tuple[Device, ...]:
        """GPUs in rank order: by node, then by local rank."""
        return of_kind(self.devices, DeviceKind.GPU)

    @cached_property
    def gpu_models(self) -> tuple[str, ...]:
        """PCI vendor:device of the GPUs, each once, in order; none that is not known."""
        return tuple(sorted({gpu.model for gpu in self.gpus if gpu.model}))

    @cached_property
    def nics(self) -> tuple[Device, ...]:
        """NICs (one per port) by node, then by index."""
        return of_kind(self.devices, DeviceKind.NIC)

    @cached_property
    def node_count(self) -> int:
        """Number of nodes that hold at least one GPU: NVLink domains, or hosts."""
        return len({gpu.node for gpu in self.gpus})

    @cached_property
    def host_count(self) -> int:
        """Number of hosts, of which an NVLink domain may have several."""
        inside = (device for device in self.devices if device.node != NETWORK_NODE)
        return len({(device.node, device.host_in_node) for device in inside})

    @cached_property
    def hosts_of_nodes(self) -> tuple[int, ...]:
        """Number of hosts with GPUs of every node, in rank order."""
        hosts = {(gpu.node, gpu.host_in_node) for gpu in self.gpus}
        return tuple(count for _, count in sorted(Counter(node for node, _ in hosts).items()))

    @cached_property
    def device(self) -> dict[str, Device]:
        """Devices by name."""
        return {device.name: device for device in self.devices}

    @cached_property
    def node_of_rank(self) -> tuple[int, ...]:
        """Node of every rank, renumbered 0, 1, ... in rank order."""
        order = {node: i for i, node in enumerate(sorted({gpu.node for gpu in self.gpus}))}
        return tuple(order[gpu.node] for gpu in self.gpus)

    @cached_property
    def ranks_per_node(self) -> int:
        """GPUs of every node; 0 when nodes differ."""
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
    def local_routes(self) -> dict[tuple[str, str], tuple[Link, ...]]:
        """Cache of paths inside hosts, by source and destination; empty if there is no path.

        `probes.topology.paths` fills it: binding, sketches and models ask for the same pairs.
        """
        return {}

    @cached_property
    def limit_between(self) -> dict[tuple[str, str], PairLimit]:
        """Measured limits by (src, dst)."""
        return {(limit.src, limit.dst): limit for limit in self.limits}

    @cached_property
    def graph(self) -> nx.MultiDiGraph[str]:
        """The topology as a networkx graph; node attribute `device`, edge attribute `link`."""
        import networkx as nx  # noqa: PLC0415 - would double the start-up time of a worker

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=self.name)
        for device in self.devices:
            graph.add_node(device.name, device=device)
        for link in self.links:
            graph.add_edge(link.src, link.dst, link=link)
        return graph

    def fingerprint(self) -> str:
        """Identity of the machine; see `probes.topology.fingerprint`."""
        from probes.topology.fingerprint import fingerprint  # noqa: PLC0415 - NumPy

        return fingerprint(self.devices, self.links, self.limits)
