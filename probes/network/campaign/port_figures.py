"""Figures of each port's link to the network: those of its class, or its own if it is an outlier.

A measured port takes the class of the shortest distance at its own line rate (pairs with a slower
port do not show its bandwidth). An unmeasured port takes the class of its network and line rate,
and without such a class its line rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probes.network.campaign.findings import ClassFigure, Findings
from probes.network.campaign.outliers import Quantity, Role
from probes.network.port_groups import Distance, LinkClass, link_class
from probes.network.ports import NetworkPort
from probes.topology.graph import Provenance
from probes.topology.link_figures import NETWORK_LATENCY_US

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
    """Figures by port.

    Args:
        ports: the ports of the campaign.
        findings: findings of the campaign.
        networks: networks of all ports, ports that could not be measured included.
    """

    def __init__(
        self, ports: Sequence[NetworkPort], findings: Findings, networks: Sequence[int]
    ) -> None:
        self.ports = ports
        self.networks = networks
        self.figures = {(f.quantity, f.link_class): f for f in findings.figures}
        self.classes: dict[tuple[Quantity, int], list[ClassFigure]] = {}
        """Class figures by quantity and network."""
        for figure in findings.figures:
            key = (figure.quantity, figure.link_class.network)
            self.classes.setdefault(key, []).append(figure)
        self.own = {(s.port, s.quantity, s.role): s for s in findings.slow_ports}
        self.seen: dict[tuple[Quantity, int], dict[LinkClass, None]] = {}
        """Classes in which each port was measured."""
        for result in findings.results:
            for quantity, tool in (
                (Quantity.BANDWIDTH, result.bandwidth_by),
                (Quantity.LATENCY, result.latency_by),
            ):
                kind = link_class(ports, findings.groups, findings.networks, result.pair, tool)
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
            speed = (line_rate, 0.0, Provenance.SYSFS)
        else:
            return None
        return LinkFigures(*speed, latency_us, latency_provenance)

    def uplink(self, members: Sequence[int]) -> LinkFigures:
        """Figures between a rack's leaf and the spine: the sum over the rack's ports."""
        total, spread, provenance = 0.0, 0.0, Provenance.MEASURED
        for port in members:
            across = self._best(Quantity.BANDWIDTH, port, (Distance.OTHER_RACK,))
            link = self.link(port, Role.SENDS)
            if across is not None:
                total, spread = total + across.median, max(spread, across.spread)
            elif link is not None:
                total, provenance = total + link.bandwidth_gb_per_s, Provenance.ASSUMED
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
