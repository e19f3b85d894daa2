"""From the links of a route to an edge and the ports on it.

Every link that more than one edge can pass is a port: a GPU's way into and out of the NVSwitches
(`out:`, `in:`) and a NIC's transmit and receive side (`tx:`, `rx:`), one each however many switches
there are, and each PCIe, socket and network link by its own ends (`pcie:a>b`). A direct GPU-to-GPU
link belongs to one edge and needs no port.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from probes.topology.graph import DeviceKind, Link, LinkKind, Topology
from sketches.binding import nic_gb_per_s
from sketches.errors import SketchError
from sketches.sketch import Edge, EdgeKind, Port

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
    """An edge with the ports it names."""

    edge: Edge
    ports: tuple[Port, ...]


def wire(
    topology: Topology,
    src: int,
    dst: int,
    links: Sequence[Link],
    most_gb_per_s: float = math.inf,
    ports_of: Callable[[Link], Sequence[Port]] | None = None,
) -> Wire:
    """The edge from rank `src` to rank `dst` along `links`.

    An edge that passes the network counts as a network edge even where PCIe is narrower.

    Args:
        topology: The machine.
        src: The rank that sends.
        dst: The rank that receives.
        links: The way, in travel order.
        most_gb_per_s: What the way carries, where that is less than each of its links does.
        ports_of: `PortsOfLinks`, where many wires share links; None: `link_ports`.
    """
    ports_of = ports_of or partial(link_ports, topology)
    narrowest = min(links, key=lambda link: link.bandwidth_gb_per_s)
    crosses = any(link.kind is LinkKind.NETWORK for link in links)
    ports = tuple(port for link in links for port in ports_of(link))
    return Wire(
        Edge(
            src=src,
            dst=dst,
            kind=EdgeKind.NETWORK if crosses else _KIND[narrowest.kind],
            alpha_us=sum(link.latency_us for link in links),
            bandwidth_gb_per_s=min(narrowest.bandwidth_gb_per_s, most_gb_per_s),
            ports=tuple(port.name for port in ports),
        ),
        ports,
    )


def through_switches_gb_per_s(topology: Topology, src: str, dst: str, switch: DeviceKind) -> float:
    """What two devices exchange over all switches between them at once, each as its narrower side.

    Zero when no switch of this kind has links to both.
    """
    between = dict.fromkeys(
        link.dst for link in topology.links_from[src] if topology.device[link.dst].kind is switch
    )
    return sum(min(_side(topology, src, one), _side(topology, one, dst)) for one in between)


def _side(topology: Topology, src: str, dst: str) -> float:
    return sum(link.bandwidth_gb_per_s for link in topology.links_between.get((src, dst), ()))


def assemble(wires: Iterable[Wire]) -> tuple[tuple[Edge, ...], tuple[Port, ...]]:
    """Edges by (src, dst) and ports by name, without ports that can never be what limits.

    Those are PCIe, socket and network links that one edge alone passes, or whose edges all pass
    another port that is not wider.

    Raises:
        SketchError: Two wires give one port two bandwidths; this is a defect of the sketch.
    """
    ordered = sorted(wires, key=lambda one: (one.edge.src, one.edge.dst))
    users: dict[Port, set[int]] = {}
    for number, one in enumerate(ordered):
        for port in one.ports:
            users.setdefault(port, set()).add(number)
    _check_ports(users)
    kept = {
        port.name: port
        for port, edges in users.items()
        if port.name.startswith(_ALWAYS_KEPT)
        or (len(edges) > 1 and not _hides(port, ordered[min(edges)].ports, users))
    }
    edges = tuple(
        replace(one.edge, ports=tuple(name for name in one.edge.ports if name in kept))
        for one in ordered
    )
    return edges, tuple(kept[name] for name in sorted(kept))


def _check_ports(ports: Iterable[Port]) -> None:
    known: dict[str, Port] = {}
    for port in ports:
        other = known.setdefault(port.name, port)
        if other != port:
            raise SketchError(
                f"port {port.name} has {other.bandwidth_gb_per_s:g} GB/s on one edge and "
                f"{port.bandwidth_gb_per_s:g} on another; please report it with the topology"
            )


def _hides(port: Port, way: Sequence[Port], users: Mapping[Port, set[int]]) -> bool:
    """Whether another port on the way is always at least as busy; of two alike the first stays."""
    for other in way:
        if other == port or not users[port] <= users[other]:
            continue
        if other.bandwidth_gb_per_s < port.bandwidth_gb_per_s:
            return True
        if other.bandwidth_gb_per_s == port.bandwidth_gb_per_s and (
            len(users[other]) > len(users[port])
            or other.name.startswith(_ALWAYS_KEPT)
            or way.index(other) < way.index(port)
        ):
            return True
    return False


class PortsOfLinks:
    """`link_ports` with every link object looked up once."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[int, tuple[Link, list[Port]]] = {}

    def __call__(self, link: Link) -> list[Port]:
        """The ports that a transfer over this link occupies."""
        # By identity, which is quicker than all fields; the link is kept, so no other takes its id.
        known = self._known.get(id(link))
        if known is None:
            known = self._known[id(link)] = (link, link_ports(self._topology, link))
        return known[1]


def link_ports(topology: Topology, link: Link) -> list[Port]:
    """The ports that a transfer over this link occupies."""
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
