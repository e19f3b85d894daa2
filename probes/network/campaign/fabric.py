"""The network between hosts as devices and links: `attach_network`.

There is one switch per measured network: `fabric` if NICs of every index reach each other,
`rail0`, `rail1`, ... if each index is a separate network (the names of
`probes.topology.replicate`, so that a probed cluster equals a described one). Where two or
more racks are known, a network has a leaf switch per rack and a spine.

A NIC's link has the figure of its class, which scatters less than a single measurement; only a slow
port has its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from probes.inputs.messages import listed
from probes.network.campaign.findings import ClassFigure, Findings
from probes.network.campaign.outliers import Quantity, Role
from probes.network.campaign.uplinks import FALLS_SHORT
from probes.network.port_groups import NO_NETWORK, Distance, LinkClass
from probes.network.ports import NetworkPort
from probes.topology.bandwidth_class import NETWORK_LATENCY_US
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)

_ORDER = {distance: index for index, distance in enumerate(Distance)}


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Figures of one direction of a link."""

    bandwidth_gb_per_s: float
    spread: float
    provenance: Provenance
    latency_us: float
    latency_provenance: Provenance


class PortFigures:
    """Figures by port; `networks` includes ports that could not be measured."""

    def __init__(self, findings: Findings, networks: Sequence[int]) -> None:
        self.ports = findings.groups.ports
        self.networks = networks
        self.figures = {(f.quantity, f.link_class): f for f in findings.figures}
        self.classes: dict[tuple[Quantity, int], list[ClassFigure]] = {}
        """Class figures by quantity and network."""
        for figure in findings.figures:
            key = (figure.quantity, figure.link_class.network)
            self.classes.setdefault(key, []).append(figure)
        self.racks = findings.groups.racks
        self.uplinks = {(up.network, up.rack, up.sends): up for up in findings.uplinks}
        self.own = {(s.port, s.quantity, s.role): s for s in findings.slow_ports}
        self.seen: dict[tuple[Quantity, int], dict[LinkClass, None]] = {}
        """Classes in which each port was measured."""
        for result in findings.results:
            for quantity, tool in (
                (Quantity.BANDWIDTH, result.bandwidth_by),
                (Quantity.LATENCY, result.latency_by),
            ):
                kind = findings.groups.link_class(result.pair, tool)
                if kind is not None and (quantity, kind) in self.figures:
                    for port in (result.pair.client, result.pair.server):
                        self.seen.setdefault((quantity, port), {})[kind] = None

    def link(self, port: int, role: Role) -> LinkFigures | None:
        """Figures of the link when the port sends or receives; None when unknown."""
        latency_us, latency_provenance = self._latency(port)
        bandwidth = self._class_of(Quantity.BANDWIDTH, port)
        slow = self.own.get((port, Quantity.BANDWIDTH, role))
        line_rate = self.ports[port].line_rate_gb_per_s
        if slow is not None:
            speed = (slow.figure, 0.0, Provenance.MEASURED)
        elif bandwidth is not None:
            speed = (bandwidth.median, bandwidth.spread, Provenance.MEASURED)
        elif line_rate > 0:
            speed = (line_rate, 0.0, self.ports[port].line_rate_provenance)
        else:
            return None
        return LinkFigures(*speed, latency_us, latency_provenance)

    def uplink(self, members: Sequence[int], *, sends: bool) -> LinkFigures:
        """Figures from a rack's leaf to the spine, or back.

        Where the links between racks are the limit, the bandwidth is what they carried, else the
        sum over the rack's ports of what these reached; less than their links it is a lower bound.
        """
        total, spread, reachable, provenance = 0.0, 0.0, 0.0, Provenance.MEASURED
        for port in members:
            across = self._best(Quantity.BANDWIDTH, port, (Distance.OTHER_RACK,))
            link = self.link(port, Role.SENDS if sends else Role.RECEIVES)
            if link is not None:
                reachable += link.bandwidth_gb_per_s
            if across is not None:
                total, spread = total + across.median, max(spread, across.spread)
            elif link is not None:
                total, provenance = total + link.bandwidth_gb_per_s, Provenance.ASSUMED
        if total < FALLS_SHORT * reachable:
            provenance = Provenance.ASSUMED
        measured = self.uplinks.get((self.networks[members[0]], self.racks[members[0]], sends))
        if measured is not None and measured.is_contended:
            total, spread, provenance = measured.at_once_gb_per_s, 0.0, Provenance.MEASURED
        near = self._best(Quantity.LATENCY, members[0], (Distance.SAME_RACK,))
        far = self._best(Quantity.LATENCY, members[0], (Distance.OTHER_RACK,))
        if near is None or far is None:
            return LinkFigures(total, spread, provenance, 0.0, Provenance.ASSUMED)
        latency_us = max(0.0, (far.median - near.median) / 2)
        return LinkFigures(total, spread, provenance, latency_us, Provenance.MEASURED)

    def _latency(self, port: int) -> tuple[float, Provenance]:
        """Half of the latency between NICs; a late port has all of its excess."""
        late = self.own.get((port, Quantity.LATENCY, Role.EITHER))
        figure = self._class_of(Quantity.LATENCY, port)
        if late is not None:
            return late.figure - late.expected / 2, Provenance.MEASURED
        if figure is not None:
            return figure.median / 2, Provenance.MEASURED
        return NETWORK_LATENCY_US / 2, Provenance.ASSUMED

    def _class_of(self, quantity: Quantity, port: int) -> ClassFigure | None:
        return self._best(quantity, port, tuple(Distance))

    def _best(
        self, quantity: Quantity, port: int, distances: Sequence[Distance]
    ) -> ClassFigure | None:
        """Figure of the port's own class, else of its network's."""
        seen = (self.figures[quantity, kind] for kind in self.seen.get((quantity, port), ()))
        return self._nearest(quantity, port, seen, distances) or self._nearest(
            quantity, port, self.classes.get((quantity, self.networks[port]), ()), distances
        )

    def _nearest(
        self,
        quantity: Quantity,
        port: int,
        figures: Iterable[ClassFigure],
        distances: Sequence[Distance],
    ) -> ClassFigure | None:
        line_rate = self.ports[port].line_rate_gb_per_s
        fitting = [
            figure
            for figure in figures
            if figure.link_class.distance in distances
            and (quantity is Quantity.LATENCY or figure.link_class.line_rate_gb_per_s == line_rate)
        ]
        # Of two tools, the one with the higher bandwidth or lower latency.
        better = -1 if quantity is Quantity.BANDWIDTH else 1
        return min(
            fitting,
            key=lambda f: (_ORDER[f.link_class.distance], better * f.median),
            default=None,
        )


def attach_network(topology: Topology, findings: Findings) -> Topology:
    """Connect the NICs of a cluster's hosts, `n{host}/nic{nic}`, according to the findings.

    Returns the cluster with network switches, their links, and the findings' notes. A single host
    gets the notes only.
    """
    ports = findings.groups.ports
    notes = [*topology.notes, *findings.notes]
    if len({port.host for port in ports}) < 2:
        return replace(topology, notes=tuple(notes))
    known = _ports_of_nics(topology, findings)
    networks = _networks(findings, known)
    figures = PortFigures(findings, networks)
    attached = [port for port in known if figures.link(port, Role.SENDS) is not None]
    notes += _port_notes(topology, findings, known, figures)
    devices: list[Device] = []
    links: list[Link] = []
    for network, name in _switch_names(ports, networks, attached).items():
        members = [port for port in attached if networks[port] == network]
        racks = findings.groups.racks
        leaves = _leaves(name, sorted({racks[port] for port in members}))
        devices += [_switch(leaf, len(devices) + i) for i, leaf in enumerate(leaves.values())]
        for port in members:
            links += _cable(ports[port], leaves.get(racks[port], name), port, figures)
        if len(set(leaves.values())) > 1:
            devices.append(_switch(f"{name}-spine", len(devices)))
            uplinks = list(_uplinks(f"{name}-spine", leaves, members, racks, figures))
            if any(link.provenance is Provenance.ASSUMED for link in uplinks):
                notes.append(
                    f"{name}: the links of its {len(leaves)} leaf switches have the total "
                    "bandwidth that the ports of a rack reached, which is a lower bound."
                )
            links += uplinks
    return replace(
        topology,
        devices=(*topology.devices, *devices),
        links=(*topology.links, *links),
        notes=tuple(notes),
    )


def _ports_of_nics(topology: Topology, findings: Findings) -> list[int]:
    """Return a reachable port for every NIC of the topology that has any, measured ports first."""
    ports = findings.groups.ports
    unreachable, unmeasured = set(findings.unreachable_ports), set(findings.unmeasured_ports)
    port_of: dict[str, int] = {}
    for port in sorted(range(len(ports)), key=lambda i: (i in unmeasured, i)):
        name = _nic(ports[port])
        if name in topology.device and port not in unreachable:
            port_of.setdefault(name, port)
    return sorted(port_of.values())


def _nic(port: NetworkPort) -> str:
    return f"n{port.host}/nic{port.nic}"


def _networks(findings: Findings, known: Iterable[int]) -> tuple[int, ...]:
    """Return the networks of all ports; an unmeasured port is in that of most of its rail."""
    ports, networks = findings.groups.ports, list(findings.groups.networks)
    of_rail: dict[int, Counter[int]] = {}
    for port in known:
        if networks[port] != NO_NETWORK:
            of_rail.setdefault(ports[port].nic, Counter())[networks[port]] += 1
    measured = {network for network in networks if network != NO_NETWORK}
    next_network = max(measured, default=NO_NETWORK) + 1
    for port in known:
        if networks[port] != NO_NETWORK:
            continue
        rail = ports[port].nic
        if rail not in of_rail:
            # An unknown rail is in the only network, else a network of its own.
            of_rail[rail] = Counter(measured if len(measured) == 1 else {next_network: 1})
            next_network += 1
        networks[port] = of_rail[rail].most_common(1)[0][0]
    return tuple(networks)


def _switch_names(
    ports: Sequence[NetworkPort], networks: Sequence[int], attached: Iterable[int]
) -> dict[int, str]:
    """Return the switch names by network, in the order of rails."""
    rails: dict[int, set[int]] = {}
    for port in attached:
        rails.setdefault(networks[port], set()).add(ports[port].nic)
    order = sorted(rails, key=lambda network: (min(rails[network]), network))
    one_rail_each = all(len(members) == 1 for members in rails.values())
    if one_rail_each and len(set().union(*rails.values())) == len(rails):
        return {network: f"rail{min(rails[network])}" for network in order}
    if len(rails) == 1:
        return {order[0]: "fabric"}
    return {network: f"network{number}" for number, network in enumerate(order)}


def _leaves(name: str, racks: Sequence[str]) -> dict[str, str]:
    """Return the switch of every rack; the same for all if fewer than two racks are known."""
    if sum(1 for rack in racks if rack) < 2:
        return {racks[0]: name}
    return {rack: f"{name}-leaf{number}" for number, rack in enumerate(racks)}


def _switch(name: str, index: int) -> Device:
    return Device(name, DeviceKind.NETWORK_SWITCH, NETWORK_NODE, index)


def _link(src: str, dst: str, figures: LinkFigures) -> Link:
    return Link(
        src,
        dst,
        LinkKind.NETWORK,
        figures.bandwidth_gb_per_s,
        figures.latency_us,
        figures.provenance,
        latency_provenance=figures.latency_provenance,
        spread=figures.spread,
    )


def _cable(nic: NetworkPort, switch: str, port: int, figures: PortFigures) -> Iterable[Link]:
    up, down = figures.link(port, Role.SENDS), figures.link(port, Role.RECEIVES)
    if up is not None and down is not None:
        yield _link(_nic(nic), switch, up)
        yield _link(switch, _nic(nic), down)


def _uplinks(
    spine: str,
    leaves: dict[str, str],
    members: Sequence[int],
    racks: Sequence[str],
    figures: PortFigures,
) -> Iterable[Link]:
    of_rack: dict[str, list[int]] = {}
    for port in members:
        of_rack.setdefault(racks[port], []).append(port)
    for rack, leaf in leaves.items():
        for src, dst, sends in ((leaf, spine, True), (spine, leaf, False)):
            across = figures.uplink(of_rack[rack], sends=sends)
            yield replace(_link(src, dst, across), lanes=len(of_rack[rack]))


def _port_notes(
    topology: Topology, findings: Findings, known: Sequence[int], figures: PortFigures
) -> Iterable[str]:
    """Yield notes about ports with assumed figures or without a link."""
    ports = findings.groups.ports
    reachable = {_nic(ports[port]) for port in known}
    with_port = {_nic(port) for port in ports}
    unreachable = [nic.name for nic in topology.nics if nic.name in with_port - reachable]
    absent = [nic.name for nic in topology.nics if nic.name not in with_port]
    links = {port: figures.link(port, Role.SENDS) for port in known}
    unknown = [ports[port].label for port, link in links.items() if link is None]
    by_rate = [
        ports[port].label
        for port, link in links.items()
        if link is not None and link.provenance is Provenance.SYSFS
    ]
    unmeasured = set(findings.unmeasured_ports)
    by_class = [
        ports[port].label
        for port, link in links.items()
        if port in unmeasured and link is not None and link.provenance is Provenance.MEASURED
    ]
    for names, problem in (
        (unreachable, "have no network link, because nothing reaches them"),
        (absent, "have no network link, because they have no port that is up"),
        (unknown, "have no network link, because neither a measurement nor the port gives a speed"),
        (by_rate, "have the bandwidth of their line rate, because nothing measured it"),
        (by_class, "were not measured and have the figures of their class"),
    ):
        if names:
            yield f"NICs that {problem}: {listed(names)}."
