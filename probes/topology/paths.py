"""Paths between devices: the links that a transfer takes inside a host and through the network.

Inside a host a transfer goes over a direct NVLink, xGMI or C2C link if there is one, else through
an NVSwitch, else through PCIe and the sockets by the fewest hops (the widest among equals, then by
name). It is never relayed by another GPU or by a NIC: that is the synthesizer's decision. Through
the network it passes network switches only.

The search expands transit devices only and looks up the last hop by name, so its cost depends on
the number of switches between the two devices, not on the number of GPUs and NICs attached to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology

_FABRIC_KINDS = frozenset({LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C})
_HOST_TRANSIT = frozenset({DeviceKind.PCIE_SWITCH, DeviceKind.CPU})
_NETWORK_TRANSIT = frozenset({DeviceKind.NETWORK_SWITCH})


class Proximity(IntEnum):
    """Distance of a NIC from a GPU in the PCIe tree; less is closer."""

    SWITCH = 0
    """A direct link, or PCIe switches only."""
    HOST_BRIDGE = 1
    """Through one CPU (one NUMA node)."""
    SOCKETS = 2
    """Across sockets, or across NUMA nodes of one socket."""
    UNKNOWN = 3
    """No path between them is known."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path of one or more links in travel order."""

    links: tuple[Link, ...]
    limit_gb_per_s: float = math.inf
    """Measured bandwidth of the pair where it is below that of its links; else infinite."""

    @property
    def latency_us(self) -> float:
        """Sum of the links' latencies."""
        return sum(link.latency_us for link in self.links)

    @property
    def bandwidth_gb_per_s(self) -> float:
        """Bandwidth of the narrowest link, or the measured limit of the pair if that is less."""
        return min(self.limit_gb_per_s, *(link.bandwidth_gb_per_s for link in self.links))

    @property
    def kinds(self) -> tuple[LinkKind, ...]:
        """Kind of every link in travel order."""
        return tuple(link.kind for link in self.links)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices along the path, both ends included."""
        return (self.links[0].src, *(link.dst for link in self.links))


def local_path(topology: Topology, src: str, dst: str) -> Path | None:
    """Best path between two devices of one host; None if there is none or the hosts differ.

    Raises:
        KeyError: no device of that name.
    """
    source, target = topology.device[src], topology.device[dst]
    if src == dst or source.node != target.node:
        return None
    links = topology.local_routes.get((src, dst))
    if links is None:
        path = _local_path(topology, source, target)
        links = topology.local_routes[src, dst] = () if path is None else path.links
    if not links:
        return None
    limit = topology.limit_between.get((src, dst))
    return Path(links) if limit is None else Path(links, limit.bandwidth_gb_per_s)


def _local_path(topology: Topology, source: Device, target: Device) -> Path | None:
    src, dst = source.name, target.name
    direct = _widest(
        link for link in topology.links_between.get((src, dst), ()) if link.kind in _FABRIC_KINDS
    )
    if direct is not None:
        return Path((direct,))
    return _nvswitch_path(topology, source, target) or _fewest_hops(
        topology, source, target, _HOST_TRANSIT
    )


def network_path(topology: Topology, nic_a: str, nic_b: str) -> Path | None:
    """Path between two NICs over network links and switches only; None if there is none.

    Raises:
        KeyError: no device of that name.
    """
    if nic_a == nic_b:
        return None
    return _fewest_hops(topology, topology.device[nic_a], topology.device[nic_b], _NETWORK_TRANSIT)


def pcie_distance(topology: Topology, gpu: str, nic: str) -> Proximity:
    """Proximity of a NIC to a GPU.

    Raises:
        KeyError: no device of that name.
    """
    path = local_path(topology, gpu, nic)
    return Proximity.UNKNOWN if path is None else _proximity(topology, path)


def pcie_hops(topology: Topology, gpu: str, nic: str) -> int | None:
    """Number of links between a GPU and a NIC; orders NICs of equal proximity.

    Raises:
        KeyError: no device of that name.
    """
    path = local_path(topology, gpu, nic)
    return None if path is None else len(path.links)


def _proximity(topology: Topology, path: Path) -> Proximity:
    kinds = [topology.device[name].kind for name in path.devices[1:-1]]
    cpus = kinds.count(DeviceKind.CPU)
    if cpus == 0:
        return Proximity.SWITCH
    return Proximity.HOST_BRIDGE if cpus == 1 else Proximity.SOCKETS


def _nvswitch_path(topology: Topology, source: Device, target: Device) -> Path | None:
    """The widest path through one NVSwitch, the first by name among equals."""
    best: Path | None = None
    for up in sorted(topology.links_from[source.name], key=lambda link: link.dst):
        if topology.device[up.dst].kind is not DeviceKind.NVSWITCH:
            continue
        down = _widest(topology.links_between.get((up.dst, target.name), ()))
        if down is None:
            continue
        path = Path((up, down))
        if best is None or path.bandwidth_gb_per_s > best.bandwidth_gb_per_s:
            best = path
    return best


def _fewest_hops(
    topology: Topology, source: Device, target: Device, transit: frozenset[DeviceKind]
) -> Path | None:
    """Search breadth first over transit devices; ties go to the widest, then the first by name."""
    network = transit is _NETWORK_TRANSIT
    level: dict[str, tuple[Link, ...]] = {source.name: ()}
    seen = {source.name}
    while level:
        arrivals = []
        for name, links in level.items():
            last = _widest(_usable(topology.links_between.get((name, target.name), ()), network))
            if last is not None:
                arrivals.append((*links, last))
        if arrivals:
            return Path(min(arrivals, key=_preference))
        following: dict[str, tuple[Link, ...]] = {}
        for name, links in level.items():
            for link in _usable(topology.links_from[name], network):
                device = topology.device[link.dst]
                if device.kind not in transit or link.dst in seen:
                    continue
                if not network and device.node != source.node:
                    continue
                candidate = (*links, link)
                known = following.get(link.dst)
                if known is None or _preference(candidate) < _preference(known):
                    following[link.dst] = candidate
        seen.update(following)
        level = following
    return None


def _usable(links: Iterable[Link], network: bool) -> Iterable[Link]:
    """The network links if the path is in the network, else those inside a host."""
    return (link for link in links if (link.kind is LinkKind.NETWORK) == network)


def _preference(links: tuple[Link, ...]) -> tuple[float, tuple[str, ...]]:
    """Sort key: wider paths first, then by the names of the devices passed."""
    return (-min(link.bandwidth_gb_per_s for link in links), tuple(link.dst for link in links))


def _widest(links: Iterable[Link]) -> Link | None:
    return max(links, key=lambda link: link.bandwidth_gb_per_s, default=None)
