"""From the links of a route to an edge and the ports on it.

Every link that more than one edge can pass is a port: a GPU's way into and out of an NVSwitch
(`out:`, `in:`), a NIC's transmit and receive side (`tx:`, `rx:`), and each PCIe, socket and network
link by its own ends (`pcie:a>b`). A direct GPU-to-GPU link belongs to one edge and needs no port.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from probes.topology import DeviceKind, Link, LinkKind, Topology
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


def wire(topology: Topology, src: int, dst: int, links: Sequence[Link]) -> Wire:
    """The edge from rank `src` to rank `dst` along `links`.

    An edge that passes the network counts as a network edge even where PCIe is narrower.
    """
    narrowest = min(links, key=lambda link: link.bandwidth_gb_per_s)
    crosses = any(link.kind is LinkKind.NETWORK for link in links)
    ports = tuple(port for link in links for port in _ports(topology, link))
    return Wire(
        Edge(
            src=src,
            dst=dst,
            kind=EdgeKind.NETWORK if crosses else _KIND[narrowest.kind],
            alpha_us=sum(link.latency_us for link in links),
            bandwidth_gb_per_s=narrowest.bandwidth_gb_per_s,
            ports=tuple(port.name for port in ports),
        ),
        ports,
    )


def assemble(wires: Iterable[Wire]) -> tuple[tuple[Edge, ...], tuple[Port, ...]]:
    """Edges by (src, dst) and ports by name, without ports that can never be what limits.

    Those are host and network links that one edge alone passes, or whose edges all pass another
    port that is not wider.
    """
    ordered = sorted(wires, key=lambda one: (one.edge.src, one.edge.dst))
    ports = {port.name: port for one in ordered for port in one.ports}
    users: dict[str, set[int]] = {name: set() for name in ports}
    for number, one in enumerate(ordered):
        for port in one.ports:
            users[port.name].add(number)
    for name in sorted(ports, key=lambda name: (len(users[name]), name)):
        if not name.startswith(_ALWAYS_KEPT) and _never_limits(name, ordered, ports, users):
            del ports[name]
    edges = tuple(
        replace(one.edge, ports=tuple(name for name in one.edge.ports if name in ports))
        for one in ordered
    )
    return edges, tuple(ports[name] for name in sorted(ports))


def _never_limits(
    name: str, wires: Sequence[Wire], ports: dict[str, Port], users: dict[str, set[int]]
) -> bool:
    if len(users[name]) < 2:
        return True
    others = wires[min(users[name])].ports
    return any(
        other.name != name
        and other.name in ports
        and users[name] <= users[other.name]
        and other.bandwidth_gb_per_s <= ports[name].bandwidth_gb_per_s
        for other in others
    )


def _ports(topology: Topology, link: Link) -> list[Port]:
    source, target = topology.device[link.src].kind, topology.device[link.dst].kind
    if link.kind is LinkKind.NETWORK:
        names = [
            *([f"tx:{link.src}"] if source is DeviceKind.NIC else []),
            *([f"rx:{link.dst}"] if target is DeviceKind.NIC else []),
        ]
    elif target is DeviceKind.NVSWITCH:
        names = [f"out:{link.src}"]
    elif source is DeviceKind.NVSWITCH:
        names = [f"in:{link.dst}"]
    elif link.kind in _FABRIC and source is target is DeviceKind.GPU:
        return []
    else:
        names = []
    names = names or [f"{link.kind.value}:{link.src}>{link.dst}"]
    return [Port(name, link.bandwidth_gb_per_s) for name in names]
