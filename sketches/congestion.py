"""Congestion scores, and the connections that they remove (section III-B of TuCCL's paper).

The paper removes "virtual communication subgraphs [...] according to congestion scores" and leaves
the wiring untouched; it prints no formula. Here the score of a link between network switches is the
share of the demand that it cannot carry, `1 - capacity / demand`. The demand is what the NICs
behind it can send or receive together: those that send through its first switch, or those that
receive through its last.

While a link is congested, a NIC behind it loses its connections over it, the most congested link
first: where a rack sends, the NICs of its last nodes, where it receives, those of its first. What
stays are gateways, as many as fill the link, and no node is both an exit and an entrance where half
of a rack's nodes are enough: what it passes on inside its rack would else have to wait for what it
sends out. Only links whose bandwidth was measured or stated count, not those whose bandwidth is
assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from probes.topology.graph import Link, Provenance, Topology
from probes.topology.paths import network_path
from sketches.binding import nic_gb_per_s

CONGESTED_FROM = 0.15
"""Least score of a congested link, as the probe has it: figures of equal links differ by less."""
_KNOWN = (Provenance.MEASURED, Provenance.SPEC)

Connection = tuple[str, str]
"""Sending and receiving NIC."""


@dataclass(frozen=True, slots=True)
class Congestion:
    """A link between network switches that carries less than the NICs behind it demand."""

    link: Link
    nics: tuple[str, ...]
    """NICs behind it; the last is the next to lose its connections."""
    demand_gb_per_s: float

    @property
    def score(self) -> float:
        """Share of the demand that the link cannot carry; below 0 if it carries more."""
        return 1.0 - self.link.bandwidth_gb_per_s / self.demand_gb_per_s

    @property
    def reason(self) -> str:
        """Reason for removing a connection."""
        link = self.link
        return (
            f"congestion score {self.score:.2f}: {link.src} to {link.dst} carries "
            f"{link.bandwidth_gb_per_s:.4g} of the {self.demand_gb_per_s:.4g} GB/s of "
            f"{len(self.nics)} NICs"
        )


def prune_congested(
    topology: Topology, connections: Iterable[Connection]
) -> tuple[tuple[Connection, ...], dict[Connection, str]]:
    """Return the connections that stay, and the reason for each that is removed.

    A link keeps the connections of one NIC at least.
    """
    kept = dict.fromkeys(connections)
    removed: dict[Connection, str] = {}
    links = _links_of_nics(topology, kept)
    found = {link: _congestion(topology, link, nics) for link, nics in links.behind.items()}
    while worst := max(filter(None, found.values()), key=lambda each: each.score, default=None):
        changed = set()
        for pair in list(links.behind[worst.link][worst.nics[-1]]):
            removed[pair] = worst.reason
            for link, nic in links.passed[pair]:
                through = links.behind[link][nic]
                through.discard(pair)
                if not through:
                    del links.behind[link][nic]
                    changed.add(link)
        found |= {link: _congestion(topology, link, links.behind[link]) for link in changed}
    return tuple(pair for pair in kept if pair not in removed), removed


@dataclass(frozen=True, slots=True)
class _LinksOfNics:
    """Links between switches, and the connections that pass them."""

    behind: dict[Link, dict[str, set[Connection]]]
    """Connections of every NIC behind each link."""
    passed: dict[Connection, list[tuple[Link, str]]]
    """Links of each connection, with the NIC behind each."""


def _links_of_nics(topology: Topology, connections: Iterable[Connection]) -> _LinksOfNics:
    found = _LinksOfNics({}, {})
    for pair in connections:
        path = network_path(topology, *pair)
        between = () if path is None else path.links[1:-1]
        for link in between:
            if link.provenance in _KNOWN:
                nic = pair[1] if link is between[-1] and len(between) > 1 else pair[0]
                found.behind.setdefault(link, {}).setdefault(nic, set()).add(pair)
                found.passed.setdefault(pair, []).append((link, nic))
    return found


def _congestion(
    topology: Topology, link: Link, nics: Mapping[str, set[Connection]]
) -> Congestion | None:
    """Return the congestion of a link that more than one NIC is behind, if there is any."""
    if len(nics) < 2:
        return None
    receiving = all(nic == dst for nic, pairs in nics.items() for _, dst in pairs)
    ordered = sorted(nics, key=lambda nic: _place(topology, nic, last_first=receiving))
    rates = (nic_gb_per_s(topology, nic, receiving=receiving) for nic in ordered)
    found = Congestion(link, tuple(ordered), sum(rates))
    return found if found.score >= CONGESTED_FROM else None


def _place(topology: Topology, nic: str, *, last_first: bool) -> tuple[int, int, str]:
    device = topology.device[nic]
    return -device.node if last_first else device.node, device.index, nic
