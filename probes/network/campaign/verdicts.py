"""From measurements to findings: which ports are slow, which ways, who does not answer."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from probes.network.campaign.finding_notes import notes_of
from probes.network.campaign.findings import ClassFigure, Findings, SlowLink, SlowPort, ToolFailure
from probes.network.campaign.outliers import (
    Diagnosis,
    End,
    Judged,
    Quantity,
    Role,
    Sample,
    diagnose,
    judge,
    references,
)
from probes.network.port_groups import NO_NETWORK, LinkClass, PortGroups, link_class
from probes.network.ports import NetworkPort
from probes.network.results import Failure, PairResult, PortPair

_PEERS_TO_BLAME = 2
"""A port is slow when it is slow with so many ports that are fine; with one it may be the way."""


@dataclass(frozen=True)
class Evidence:
    """Everything that was measured, and what was asked."""

    ports: tuple[NetworkPort, ...]
    groups: PortGroups
    networks: tuple[int, ...]
    results: tuple[PairResult, ...]
    suspected: frozenset[int]
    """Ports that were suspect at any time."""
    repeated: frozenset[PortPair]
    rounds: int
    notes: tuple[str, ...]
    """Made while planning."""
    planned: frozenset[PortPair] = frozenset()
    """What was measured before anybody was suspect."""


def is_reached(result: PairResult) -> bool:
    """Whether anything came through."""
    return result.bandwidth_gb_per_s is not None or result.latency_us is not None


def _is_dead(result: PairResult) -> bool:
    """Nothing came through, and not for want of a tool or because the answer is filtered."""
    failures = {result.bandwidth_failure, result.latency_failure}
    return not is_reached(result) and bool(failures & {Failure.UNREACHABLE, Failure.TIMEOUT})


def dead_ports(networks: Sequence[int], results: Sequence[PairResult]) -> set[int]:
    """Ports that reached nobody, though enough ports of their network that are fine were tried.

    Args:
        networks: of every port; empty when they are not known yet, and nobody can be judged.
        results: what was measured so far.
    """
    fine = {end for result in results if is_reached(result) for end in _ends(result)}
    missed: dict[int, set[int]] = {}
    for result in results if networks else ():
        client, server = _ends(result)
        if _is_dead(result) and networks[client] == networks[server]:
            missed.setdefault(client, set()).add(server)
            missed.setdefault(server, set()).add(client)
    return {
        port
        for port, peers in missed.items()
        if port not in fine and len(peers & fine) >= _PEERS_TO_BLAME
    }


def _ends(result: PairResult) -> tuple[int, int]:
    return result.pair.client, result.pair.server


def samples_of(
    ports: Sequence[NetworkPort],
    groups: PortGroups,
    networks: Sequence[int],
    results: Sequence[PairResult],
    quantity: Quantity,
) -> list[Sample]:
    """Figures of one quantity with their classes, in the order of the results."""
    samples = []
    for result in results:
        figure, tool = result.bandwidth_gb_per_s, result.bandwidth_by
        if quantity is Quantity.LATENCY:
            figure, tool = result.latency_us, result.latency_by
        kind = link_class(ports, groups, networks, result.pair, tool)
        if figure is not None and kind is not None:
            samples.append(Sample(result.pair, kind, figure))
    return samples


def diagnose_figures(
    samples: Sequence[Sample], quantity: Quantity, planned: Collection[PortPair]
) -> Diagnosis:
    """Judge every sample by its class, and every end by its samples.

    What a class does is told by the pairs that were `planned` before anybody was suspect: new pairs
    of suspects are mostly bad, and would make that usual in a class of few pairs.
    """
    unbiased = [sample for sample in samples if sample.pair in planned]
    expected = references(samples, quantity) | references(unbiased, quantity)
    return diagnose(judge(samples, expected, quantity))


def diagnose_reach(networks: Sequence[int], results: Sequence[PairResult]) -> Diagnosis:
    """The same for whether anything comes through at all inside a network."""
    judged = []
    for result in results:
        client, server = result.pair.client, result.pair.server
        inside = networks[client] == networks[server] != NO_NETWORK
        if inside and (is_reached(result) or _is_dead(result)):
            ends = (End(client, Role.EITHER), End(server, Role.EITHER))
            judged.append(Judged(result.pair, ends, float(is_reached(result)), 1.0, 1.0))
    return diagnose(judged)


def conclude(evidence: Evidence) -> Findings:
    """Verdicts, class figures without what is out of line, and notes."""
    reach = diagnose_reach(evidence.networks, evidence.results)
    figures: list[ClassFigure] = []
    slow_ports: list[SlowPort] = []
    slow_links: list[SlowLink] = []
    recovered = dict.fromkeys(reach.recovered)
    for quantity in Quantity:
        samples = samples_of(
            evidence.ports, evidence.groups, evidence.networks, evidence.results, quantity
        )
        found = diagnose_figures(samples, quantity, evidence.planned)
        blamed = _slow_ports(found, quantity, evidence.repeated)
        links, transient = _slow_links(found, quantity, {p.port for p in blamed}, evidence)
        figures += _class_figures(samples, found, quantity)
        slow_ports += blamed
        slow_links += links
        recovered.update(dict.fromkeys([*found.recovered, *transient]))
    unreachable = tuple(sorted(end.port for end in reach.suspects))
    inside = [
        result
        for result in evidence.results
        if evidence.networks[result.pair.client] == evidence.networks[result.pair.server]
    ]
    asked = _places(inside)
    known = _places(filter(is_reached, inside)) | set(unreachable)
    findings = Findings(
        groups=evidence.groups,
        networks=evidence.networks,
        results=evidence.results,
        rounds=evidence.rounds,
        figures=tuple(figures),
        slow_ports=tuple(slow_ports),
        slow_links=tuple(slow_links),
        dead_links=tuple(reach.between),
        unreachable_ports=unreachable,
        unreachable_hosts=_silent_hosts(evidence.ports, asked, set(unreachable)),
        unmeasured_ports=tuple(i for i in range(len(evidence.ports)) if i not in known),
        recovered=tuple(recovered),
        failures=_failures(evidence),
        notes=(),
    )
    return notes_of(evidence.ports, findings, evidence.notes)


def _places(results: Iterable[PairResult]) -> set[int]:
    return {place for result in results for place in (result.pair.client, result.pair.server)}


def _slow_ports(
    found: Diagnosis, quantity: Quantity, repeated: Collection[PortPair]
) -> list[SlowPort]:
    by_port: dict[int, list[End]] = {}
    for end in found.suspects:
        by_port.setdefault(end.port, []).append(end)
    slow = []
    for port, ends in sorted(by_port.items()):
        alone = {end: items for end in ends if (items := found.alone(end))}
        peers = {e.port for items in alone.values() for item in items for e in item.ends} - {port}
        if len(peers) < _PEERS_TO_BLAME:
            continue
        for end, items in alone.items():
            slow.append(
                SlowPort(
                    port=port,
                    role=end.role,
                    quantity=quantity,
                    figure=statistics.median(abs(item.score) for item in items),
                    expected=statistics.median(item.expected for item in items),
                    measurements=len(items),
                    repeated=any(item.pair in repeated for item in items),
                )
            )
    return slow


def _slow_links(
    found: Diagnosis, quantity: Quantity, blamed: AbstractSet[int], evidence: Evidence
) -> tuple[list[SlowLink], list[PortPair]]:
    """Ways that are low for no port's fault, and those that only seemed so."""
    low: dict[PortPair, list[Judged]] = {}
    for item in found.low:
        # What a slow port does in its other role is its own fault, too.
        if blamed.isdisjoint((item.pair.client, item.pair.server)):
            low.setdefault(item.pair, []).append(item)
    links, transient = [], []
    for pair, items in low.items():
        if pair in found.recovered:
            continue
        ends = {pair.client, pair.server}
        cleared = pair in found.between and bool(ends & evidence.suspected)
        if cleared and pair not in evidence.repeated:
            # A port was low everywhere and then was not: what it did before counts no more.
            transient.append(pair)
            continue
        links.append(
            SlowLink(
                pair=pair,
                quantity=quantity,
                figure=statistics.median(abs(item.score) for item in items),
                expected=items[0].expected,
                measurements=len(items),
            )
        )
    return links, transient


def _class_figures(
    samples: Sequence[Sample], found: Diagnosis, quantity: Quantity
) -> list[ClassFigure]:
    """Of every class without what is out of line; one that is so as a whole has what it does."""
    out_of_line = {(item.pair, abs(item.score)) for item in found.low}
    members: dict[LinkClass, list[float]] = {}
    every: dict[LinkClass, list[float]] = {}
    for sample in samples:
        every.setdefault(sample.link_class, []).append(sample.figure)
        if (sample.pair, sample.figure) not in out_of_line:
            members.setdefault(sample.link_class, []).append(sample.figure)
    return [
        ClassFigure(
            kind,
            quantity,
            statistics.median(values),
            _spread(values),
            len(values),
            _spread(values, parts=40),
        )
        for kind, values in sorted((every | members).items())
    ]


def _spread(values: Sequence[float], parts: int = 4) -> float:
    """Over median, without the lowest and the highest of so many parts."""
    if len(values) < 2:
        return 0.0
    lower, *_, upper = statistics.quantiles(values, n=parts, method="inclusive")
    return (upper - lower) / statistics.median(values)


def _silent_hosts(
    ports: Sequence[NetworkPort], asked: Collection[int], unreachable: Collection[int]
) -> tuple[int, ...]:
    hosts = {ports[place].host for place in asked}
    answered = {ports[place].host for place in asked if place not in unreachable}
    return tuple(sorted(hosts - answered))


def _failures(evidence: Evidence) -> tuple[ToolFailure, ...]:
    found: dict[tuple[str, Failure], list[str]] = {}
    for result in evidence.results:
        if evidence.networks[result.pair.client] != evidence.networks[result.pair.server]:
            continue
        for tool, failure in (
            (result.bandwidth_by or "bandwidth", result.bandwidth_failure),
            (result.latency_by or "latency", result.latency_failure),
        ):
            if failure is not None:
                found.setdefault((tool, failure), []).append(result.detail)
    return tuple(
        ToolFailure(tool, failure, len(details), details[0])
        for (tool, failure), details in sorted(found.items())
    )
