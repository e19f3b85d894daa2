"""What each port's link to the network does: its class's figure, or its own if out of line.

A measured port takes the class in which it was measured over the shortest distance, at its own line
rate (pairs with a slower port say nothing about it). A port that was not measured takes the class
of its network and line rate, and where there is none, its line rate.
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

_ORDER = {distance: place for place, distance in enumerate(Distance)}


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Of one direction of a link."""

    bandwidth_gb_per_s: float
    spread: float
    provenance: Provenance
    latency_us: float
    latency_provenance: Provenance


class PortFigures:
    """Figures by port.

    Args:
        ports: what was measured.
        findings: of the campaign.
        networks: of every port, those included that could not be measured.
    """

    def __init__(
        self, ports: Sequence[NetworkPort], findings: Findings, networks: Sequence[int]
    ) -> None:
        self.ports = ports
        self.networks = networks
        self.figures = {(f.quantity, f.link_class): f for f in findings.figures}
        self.classes: dict[tuple[Quantity, int], list[ClassFigure]] = {}
        """In order of networks."""
        for figure in findings.figures:
            key = (figure.quantity, figure.link_class.network)
            self.classes.setdefault(key, []).append(figure)
        self.own = {(s.port, s.quantity, s.role): s for s in findings.slow_ports}
        self.seen: dict[tuple[Quantity, int], dict[LinkClass, None]] = {}
        """Classes that every port was measured in."""
        for result in findings.results:
            for quantity, tool in (
                (Quantity.BANDWIDTH, result.bandwidth_by),
                (Quantity.LATENCY, result.latency_by),
            ):
                kind = link_class(ports, findings.groups, findings.networks, result.pair, tool)
                if kind is not None and (quantity, kind) in self.figures:
                    for place in (result.pair.client, result.pair.server):
                        self.seen.setdefault((quantity, place), {})[kind] = None

    def link(self, place: int, role: Role) -> LinkFigures | None:
        """What the link does when the port sends or receives; None when nobody tells."""
        latency_us, latency_provenance = self._latency(place)
        bandwidth = self._class_of(Quantity.BANDWIDTH, place)
        slow = self.own.get((place, Quantity.BANDWIDTH, role))
        line_rate = self.ports[place].line_rate_gb_per_s
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
        """Between a rack's leaf and the spine: what the rack's ports did together across it."""
        total, spread, provenance = 0.0, 0.0, Provenance.MEASURED
        for place in members:
            across = self._best(Quantity.BANDWIDTH, place, (Distance.OTHER_RACK,))
            link = self.link(place, Role.SENDS)
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

    def _latency(self, place: int) -> tuple[float, Provenance]:
        """Half of the way from NIC to NIC; a late port has what exceeds its peers' half."""
        late = self.own.get((place, Quantity.LATENCY, Role.EITHER))
        figure = self._class_of(Quantity.LATENCY, place)
        if late is not None:
            return late.figure - late.expected / 2, Provenance.MEASURED
        if figure is not None:
            return figure.median / 2, Provenance.MEASURED
        return NETWORK_LATENCY_US / 2, Provenance.ASSUMED

    def _class_of(self, quantity: Quantity, place: int) -> ClassFigure | None:
        return self._best(quantity, place, tuple(Distance))

    def _best(
        self, quantity: Quantity, place: int, distances: Sequence[Distance]
    ) -> ClassFigure | None:
        """The port's own class, else its network's."""
        seen = (self.figures[quantity, kind] for kind in self.seen.get((quantity, place), ()))
        return self._nearest(quantity, place, seen, distances) or self._nearest(
            quantity, place, self.classes.get((quantity, self.networks[place]), ()), distances
        )

    def _nearest(
        self,
        quantity: Quantity,
        place: int,
        figures: Iterable[ClassFigure],
        distances: Sequence[Distance],
    ) -> ClassFigure | None:
        line_rate = self.ports[place].line_rate_gb_per_s
        fitting = [
            figure
            for figure in figures
            if figure.link_class.distance in distances
            and (quantity is Quantity.LATENCY or figure.link_class.line_rate_gb_per_s == line_rate)
        ]
        # Of two tools the one that got more out of the port, or was answered sooner.
        better = -1 if quantity is Quantity.BANDWIDTH else 1
        return min(
            fitting,
            key=lambda f: (_ORDER[f.link_class.distance], better * f.median),
            default=None,
        )
