"""Edges and ports from the links of a route.

Every link that several edges can use is a port: a GPU's links into and out of the NVSwitches
(`out:`, `in:`) and a NIC's transmit and receive side (`tx:`, `rx:`), each one port for any number
of switches, and each PCIe, socket and network link by its ends (`pcie:a>b`). If a GPU's path to its
NIC is unknown, the NIC's links with its host are one port each way (`to:`, `from:`). A direct
GPU-to-GPU link belongs to one edge and needs no port.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from probes.topology.graph import DeviceKind, Link, LinkKind, Topology
from sketches.binding import nic_gb_per_s
from sketches.sketch import Edge, EdgeKind, Port
from tuccl.errors import MachineError

_FABRIC = frozenset({LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C})
_KIND = {
    LinkKind.NVLINK: EdgeKind.NVLINK,
    LinkKind.XGMI: EdgeKind.XGMI,
    LinkKind.C2C: EdgeKind.C2C,
    LinkKind.PCIE: EdgeKind.PCIE,
    LinkKind.UPI: EdgeKind.PCIE,
    LinkKind.NETWORK: EdgeKind.NETWORK,
}
_ALWAYS_KEPT = ("in:", "out:", "rx:", "tx:")


@dataclass(frozen=True, slots=True)
class Wire:
    """An edge with its ports."""

    edge: Edge
    ports: tuple[Port, ...]


def wire(
    topology: Topology,
    src: int,
    dst: int,
    links: Sequence[Link],
    most_gb_per_s: float = math.inf,
    ports_of: Callable[[Link], Sequence[Port]] | None = None,
    first: Sequence[Port] = (),
    last: Sequence[Port] = (),
) -> Wire:
    """Return the edge from rank `src` to rank `dst` along `links`.

    An edge through the network is a network edge even where PCIe is narrower.

    The links stand in travel order. `most_gb_per_s` is the bandwidth of the route if it is below
    that of each link; `ports_of` is a `PortsOfLinks` if many wires share links. `first` and `last`
    are ports that a transfer passes besides those of the links.
    """
    ports_of = ports_of or partial(link_ports, topology)
    narrowest = min(links, key=lambda link: link.bandwidth_gb_per_s)
    crosses = any(link.kind is LinkKind.NETWORK for link in links)
    ports = (*first, *(port for link in links for port in ports_of(link)), *last)
    beside = (port.bandwidth_gb_per_s for port in (*first, *last))
    return Wire(
        Edge(
            src=src,
            dst=dst,
            kind=EdgeKind.NETWORK if crosses else _KIND[narrowest.kind],
            alpha_us=sum(link.latency_us for link in links),
            bandwidth_gb_per_s=min(narrowest.bandwidth_gb_per_s, most_gb_per_s, *beside),
            ports=tuple(port.name for port in ports),
        ),
        ports,
    )


def through_switches_gb_per_s(topology: Topology, src: str, dst: str, switch: DeviceKind) -> float:
    """Return the bandwidth between two devices over all switches, each at its narrower side.

    Zero if no switch of this kind has links to both.
    """
    between = dict.fromkeys(
        link.dst for link in topology.links_from[src] if topology.device[link.dst].kind is switch
    )
    return sum(
        min(_link_gb_per_s(topology, src, via), _link_gb_per_s(topology, via, dst))
        for via in between
    )


def _link_gb_per_s(topology: Topology, src: str, dst: str) -> float:
    return sum(link.bandwidth_gb_per_s for link in topology.links_between.get((src, dst), ()))


def assemble(wires: Iterable[Wire]) -> tuple[tuple[Edge, ...], tuple[Port, ...]]:
    """Return edges by (src, dst) and ports by name, without ports that can never be a bottleneck.

    These are PCIe, socket and network links that only one edge passes, or whose edges all pass
    another port that is not wider.

    Raises:
        MachineError: Two wires give one port two bandwidths, a defect of the sketch.
    """
    ordered = sorted(wires, key=lambda item: (item.edge.src, item.edge.dst))
    users: dict[Port, set[int]] = {}
    for number, item in enumerate(ordered):
        for port in item.ports:
            users.setdefault(port, set()).add(number)
    _check_ports(users)
    kept = {
        port.name: port
        for port, edges in users.items()
        if port.name.startswith(_ALWAYS_KEPT)
        or (len(edges) > 1 and not _is_hidden_by_another(port, ordered[min(edges)].ports, users))
    }
    edges = tuple(
        replace(item.edge, ports=tuple(name for name in item.edge.ports if name in kept))
        for item in ordered
    )
    return edges, tuple(kept[name] for name in sorted(kept))


def _check_ports(ports: Iterable[Port]) -> None:
    known: dict[str, Port] = {}
    for port in ports:
        first = known.setdefault(port.name, port)
        if first != port:
            raise MachineError(
                f"port {port.name} has {first.bandwidth_gb_per_s:g} GB/s on one edge and "
                f"{port.bandwidth_gb_per_s:g} on another; please report it with the topology"
            )


def _is_hidden_by_another(
    port: Port, route: Sequence[Port], users: Mapping[Port, set[int]]
) -> bool:
    """Return whether another port of the route is always as busy; of two equal the first stays."""
    for rival in route:
        if rival == port or not users[port] <= users[rival]:
            continue
        if rival.bandwidth_gb_per_s < port.bandwidth_gb_per_s:
            return True
        if rival.bandwidth_gb_per_s == port.bandwidth_gb_per_s and (
            len(users[rival]) > len(users[port])
            or rival.name.startswith(_ALWAYS_KEPT)
            or route.index(rival) < route.index(port)
        ):
            return True
    return False


class PortsOfLinks:
    """`link_ports` with a cache by link object."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[int, tuple[Link, list[Port]]] = {}

    def __call__(self, link: Link) -> list[Port]:
        """Return the ports that a transfer over this link occupies."""
        # The key is the identity, which is faster than all fields; the link is kept to keep its id.
        known = self._known.get(id(link))
        if known is None:
            known = self._known[id(link)] = (link, link_ports(self._topology, link))
        return known[1]


def link_ports(topology: Topology, link: Link) -> list[Port]:
    """Return the ports that a transfer over this link occupies."""
    source, target = topology.device[link.src].kind, topology.device[link.dst].kind
    name = f"{link.kind.value}:{link.src}>{link.dst}"
    if target is DeviceKind.NVSWITCH:
        name = f"out:{link.src}"
    elif source is DeviceKind.NVSWITCH:
        name = f"in:{link.dst}"
    elif link.kind in _FABRIC and source is target is DeviceKind.GPU:
        return []
    elif link.kind is LinkKind.NETWORK and DeviceKind.NIC in (source, target):
        ports = []
        if source is DeviceKind.NIC:
            ports.append(Port(f"tx:{link.src}", nic_gb_per_s(topology, link.src)))
        if target is DeviceKind.NIC:
            rate = nic_gb_per_s(topology, link.dst, receiving=True)
            ports.append(Port(f"rx:{link.dst}", rate))
        return ports
    return [Port(name, link.bandwidth_gb_per_s)]
