"""Findings from measurements: slow ports, slow paths, and ports that do not answer."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from probes.network.campaign.findings import (
    ClassFigure,
    Findings,
    SlowLink,
    SlowPort,
    ToolFailure,
    with_notes,
)
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
from probes.network.campaign.rack_uplinks import RackUplink
from probes.network.port_groups import LinkClass, PortGroups
from probes.network.ports import Failure, NetworkPort, PairResult, PortPair

_MIN_PEERS = 2
"""Normal peers with which a port must be slow; with one, the path may be the cause."""

_LEAST_SHARE = 0.5
"""Least part of an equal share of a full uplink that a connection gets; TCP shares unevenly."""


@dataclass(frozen=True)
class Evidence:
    """All measurements and their plan; none of a network that was not measured."""

    groups: PortGroups
    results: tuple[PairResult, ...] = ()
    suspected: frozenset[int] = frozenset()
    """Ports that were suspects at any time."""
    repeated: frozenset[PortPair] = frozenset()
    rounds: int = 0
    notes: tuple[str, ...] = ()
    """Notes of the planning."""
    planned: frozenset[PortPair] = frozenset()
    """Pairs that were measured before there were suspects."""
    uplinks: tuple[RackUplink, ...] = ()


def is_reached(result: PairResult) -> bool:
    """Whether a figure was measured."""
    return result.bandwidth_gb_per_s is not None or result.latency_us is not None


def _is_dead(result: PairResult) -> bool:
    """Whether no traffic passed, and neither a missing tool nor a filter is the cause."""
    failures = {result.bandwidth_failure, result.latency_failure}
    return not is_reached(result) and bool(failures & {Failure.UNREACHABLE, Failure.TIMEOUT})


def dead_ports(groups: PortGroups, results: Sequence[PairResult]) -> set[int]:
    """Return ports that reached no peer, though enough normal ports of their network were tried."""
    alive = {end for result in results if is_reached(result) for end in _ends(result)}
    missed: dict[int, set[int]] = {}
    for result in results:
        client, server = _ends(result)
        if _is_dead(result) and groups.in_one_network(result.pair):
            missed.setdefault(client, set()).add(server)
            missed.setdefault(server, set()).add(client)
    return {
        port
        for port, peers in missed.items()
        if port not in alive and len(peers & alive) >= _MIN_PEERS
    }


def _ends(result: PairResult) -> tuple[int, int]:
    return result.pair.client, result.pair.server


def samples_of(
    groups: PortGroups, results: Sequence[PairResult], quantity: Quantity
) -> list[Sample]:
    """Return the figures of one quantity with their classes, in the order of the results."""
    samples = []
    for result in results:
        figure, tool = result.bandwidth_gb_per_s, result.bandwidth_by
        if quantity is Quantity.LATENCY:
            figure, tool = result.latency_us, result.latency_by
        kind = groups.link_class(result.pair, tool)
        if figure is not None and kind is not None:
            samples.append(Sample(result.pair, kind, figure))
    return samples


def diagnose_figures(
    samples: Sequence[Sample], quantity: Quantity, planned: Collection[PortPair]
) -> Diagnosis:
    """Compare every sample with its class, and diagnose every end by its samples.

    The reference of a class is taken from the `planned` pairs: later pairs of suspects are mostly
    bad, and would become the reference in a class of few pairs.
    """
    unbiased = [sample for sample in samples if sample.pair in planned]
    expected = references(samples, quantity) | references(unbiased, quantity)
    return diagnose(judge(samples, expected, quantity))


def diagnose_reach(groups: PortGroups, results: Sequence[PairResult]) -> Diagnosis:
    """Diagnose every end by whether traffic passes inside a network."""
    judged = []
    for result in results:
        inside = groups.in_one_network(result.pair)
        if inside and (is_reached(result) or _is_dead(result)):
            ends = (End(result.pair.client, Role.EITHER), End(result.pair.server, Role.EITHER))
            judged.append(Judged(result.pair, ends, float(is_reached(result)), 1.0, 1.0))
    return diagnose(judged)


def conclude(evidence: Evidence) -> Findings:
    """Return the verdicts, class figures without outliers, and notes."""
    reach = diagnose_reach(evidence.groups, evidence.results)
    figures: list[ClassFigure] = []
    slow_ports: list[SlowPort] = []
    slow_links: list[SlowLink] = []
    recovered = dict.fromkeys(reach.recovered)
    for quantity in Quantity:
        samples = samples_of(evidence.groups, evidence.results, quantity)
        diagnosis = diagnose_figures(samples, quantity, evidence.planned)
        slow = _slow_ports(diagnosis, quantity, evidence.repeated)
        links, transient = _slow_links(diagnosis, quantity, {p.port for p in slow}, evidence)
        figures += _class_figures(samples, diagnosis, quantity)
        slow_ports += slow
        slow_links += [link for link in links if not _is_contention(link, evidence)]
        recovered.update(dict.fromkeys([*diagnosis.recovered, *transient]))
    unreachable = tuple(sorted(end.port for end in reach.suspects))
    ports = evidence.groups.ports
    inside = [r for r in evidence.results if evidence.groups.in_one_network(r.pair)]
    tried = _ports_of(inside)
    judged = _ports_of(filter(is_reached, inside)) | set(unreachable)
    findings = Findings(
        groups=evidence.groups,
        results=evidence.results,
        rounds=evidence.rounds,
        figures=tuple(figures),
        slow_ports=tuple(slow_ports),
        slow_links=tuple(slow_links),
        dead_links=tuple(reach.between),
        unreachable_ports=unreachable,
        unreachable_hosts=_silent_hosts(ports, tried, set(unreachable)),
        unmeasured_ports=tuple(i for i in range(len(ports)) if i not in judged),
        recovered=tuple(recovered),
        failures=_failures(inside),
        notes=(),
        uplinks=evidence.uplinks,
    )
    return with_notes(findings, evidence.notes)


def _ports_of(results: Iterable[PairResult]) -> set[int]:
    return {port for result in results for port in (result.pair.client, result.pair.server)}


def _slow_ports(
    diagnosis: Diagnosis, quantity: Quantity, repeated: Collection[PortPair]
) -> list[SlowPort]:
    by_port: dict[int, list[End]] = {}
    for end in diagnosis.suspects:
        by_port.setdefault(end.port, []).append(end)
    slow = []
    for port, ends in sorted(by_port.items()):
        alone = {end: items for end in ends if (items := diagnosis.alone(end))}
        peers = {e.port for items in alone.values() for item in items for e in item.ends} - {port}
        if len(peers) < _MIN_PEERS:
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
    diagnosis: Diagnosis, quantity: Quantity, slow: AbstractSet[int], evidence: Evidence
) -> tuple[list[SlowLink], list[PortPair]]:
    """Return slow paths without a slow port, and pairs that were slow only temporarily."""
    low: dict[PortPair, list[Judged]] = {}
    for item in diagnosis.low:
        # Low figures of a slow port in its other role are its own fault as well.
        if slow.isdisjoint((item.pair.client, item.pair.server)):
            low.setdefault(item.pair, []).append(item)
    links, transient = [], []
    for pair, items in low.items():
        if pair in diagnosis.recovered:
            continue
        ends = {pair.client, pair.server}
        cleared = pair in diagnosis.between and bool(ends & evidence.suspected)
        if cleared and pair not in evidence.repeated:
            # A port was low everywhere and recovered, so its earlier figures do not count.
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


def _is_contention(link: SlowLink, evidence: Evidence) -> bool:
    """Whether a path between racks has its share of uplinks that are too narrow for all ports."""
    racks, networks = evidence.groups.racks, evidence.groups.networks
    client, server = link.pair.client, link.pair.server
    if link.quantity is not Quantity.BANDWIDTH or racks[client] == racks[server]:
        return False
    return any(
        uplink.is_contended and link.figure >= _LEAST_SHARE * uplink.at_once_gb_per_s / uplink.ports
        for uplink in evidence.uplinks
        if (uplink.network, uplink.rack, uplink.sends)
        in {(networks[client], racks[client], True), (networks[server], racks[server], False)}
    )


def _class_figures(
    samples: Sequence[Sample], diagnosis: Diagnosis, quantity: Quantity
) -> list[ClassFigure]:
    """Return the figure of every class without outliers, or with them if all are outliers."""
    outliers = {(item.pair, abs(item.score)) for item in diagnosis.low}
    members: dict[LinkClass, list[float]] = {}
    every: dict[LinkClass, list[float]] = {}
    for sample in samples:
        every.setdefault(sample.link_class, []).append(sample.figure)
        if (sample.pair, sample.figure) not in outliers:
            members.setdefault(sample.link_class, []).append(sample.figure)
    return [
        ClassFigure(
            kind,
            quantity,
            statistics.median(values),
            _spread(values),
            len(values),
            _spread(values, quantiles=40),
        )
        for kind, values in sorted((every | members).items())
    ]


def _spread(values: Sequence[float], quantiles: int = 4) -> float:
    """Range over median, without the lowest and highest of `quantiles` groups."""
    if len(values) < 2:
        return 0.0
    lower, *_, upper = statistics.quantiles(values, n=quantiles, method="inclusive")
    return (upper - lower) / statistics.median(values)


def _silent_hosts(
    ports: Sequence[NetworkPort], tried: Collection[int], unreachable: Collection[int]
) -> tuple[int, ...]:
    hosts = {ports[port].host for port in tried}
    answered = {ports[port].host for port in tried if port not in unreachable}
    return tuple(sorted(hosts - answered))


def _failures(results: Sequence[PairResult]) -> tuple[ToolFailure, ...]:
    found: dict[tuple[str, Failure], list[str]] = {}
    for result in results:
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
