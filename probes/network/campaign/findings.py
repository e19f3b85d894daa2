"""The findings of a campaign: `Findings`, with notes for people and figures for the topology."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from probes.inputs.messages import listed
from probes.network.campaign.outliers import Quantity, Role
from probes.network.campaign.rack_uplinks import RackUplink
from probes.network.port_groups import NO_NETWORK, Distance, LinkClass, PortGroups
from probes.network.ports import Failure, NetworkPort, PairResult, PortPair
from probes.topology.figure_text import three_digits
from probes.topology.hosts import folded

_FOLDED_FROM = 4
"""Number of slow paths between two racks, or of ports of a rack, that become one sentence."""
_LIKE_LINE_RATE = (0.88, 1.03)
"""Normal range of bandwidth over line rate, as in `probes.topology.bandwidth_class`."""
_ALIKE = 0.15
"""Spread up to which the figures of a class are called alike; nearly all are within twice this."""
_QUANTITY_WORDS = {Quantity.BANDWIDTH: "", Quantity.LATENCY: "latency "}
_UNITS = {Quantity.BANDWIDTH: "GB/s", Quantity.LATENCY: "us"}


def with_notes(findings: Findings, before: Sequence[str] = ()) -> Findings:
    """Return the findings with their notes after those in `before`."""
    ports = findings.groups.ports
    notes = [
        *before,
        *_not_measured(ports, findings),
        *_networks(findings),
        *_line_rates(ports, findings),
        *_against_line_rate(findings),
        *_contention(findings.uplinks),
        *_slow_ports(ports, findings),
        *_slow_links(ports, findings),
        *_silent(ports, findings),
        *_recovered(ports, findings.recovered),
        *_failures(ports, findings),
    ]
    return replace(findings, notes=tuple(notes))


def _path_text(ports: Sequence[NetworkPort], pair: PortPair) -> str:
    return f"{ports[pair.client].label} -> {ports[pair.server].label}"


def _not_measured(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    silent = [ports[port].label for port, reason in findings.groups.excluded if not reason]
    if silent:
        yield f"Ports without an address are not measured: {listed(silent)}."
    groups: dict[str, list[str]] = {}
    for port, reason in findings.groups.excluded:
        if reason:
            groups.setdefault(reason, []).append(ports[port].label)
    for reason, labels in groups.items():
        yield f"{listed(labels)} {'are' if len(labels) > 1 else 'is'} not measured: {reason}."
    tried = {port for port, _ in findings.groups.excluded}
    for result in findings.results:
        if findings.groups.in_one_network(result.pair):
            tried.update((result.pair.client, result.pair.server))
    isolated = [ports[i].label for i in findings.unmeasured_ports if i not in tried]
    if isolated:
        yield f"Ports without a peer in their network: {listed(isolated)}."


def _networks(findings: Findings) -> Iterable[str]:
    subnets: dict[int, dict[str, None]] = {}
    for network, subnet in zip(findings.groups.networks, findings.groups.subnets, strict=True):
        if network != NO_NETWORK:
            subnets.setdefault(network, {})[subnet] = None
    for members in subnets.values():
        if len(members) > 1:
            yield f"Subnets that reach each other, taken as one network: {listed(members)}."
    if len(subnets) > 1:
        names = (next(iter(members)) for members in subnets.values())
        yield f"{len(subnets)} networks that do not reach each other: {listed(names)}."


def _line_rates(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    """Yield a note for NICs of one index whose line rates differ."""
    rails: dict[int, list[NetworkPort]] = {}
    for port, network in zip(ports, findings.groups.networks, strict=True):
        if network != NO_NETWORK and port.line_rate_gb_per_s > 0:
            rails.setdefault(port.nic, []).append(port)
    for members in rails.values():
        usual, _ = Counter(port.line_rate_gb_per_s for port in members).most_common(1)[0]
        different = [port for port in members if port.line_rate_gb_per_s != usual]
        if different:
            names = listed(f"{port.label} ({port.line_rate_gb_per_s:g})" for port in different)
            yield f"Line rate is {usual:g} GB/s on most hosts, but not of {names}."


def _against_line_rate(findings: Findings) -> Iterable[str]:
    groups: dict[tuple[str, float, str], list[ClassFigure]] = {}
    for figure in findings.figures:
        key = figure.link_class
        if figure.quantity is Quantity.BANDWIDTH and key.line_rate_gb_per_s > 0:
            share = figure.median / key.line_rate_gb_per_s
            if not _LIKE_LINE_RATE[0] <= share <= _LIKE_LINE_RATE[1]:
                group = (key.distance.value, key.line_rate_gb_per_s, key.tool)
                groups.setdefault(group, []).append(figure)
    for (distance, line_rate, tool), members in groups.items():
        median = statistics.median(figure.median for figure in members)
        spread = max(figure.spread for figure in members)
        where = _where(findings, members)
        width = max(figure.width for figure in members)
        scatter = "all of them alike" if width < 2 * _ALIKE else f"all but a few {width:.0%} apart"
        if spread >= _ALIKE:
            scatter = f"with quartiles {spread:.0%} apart"
        known = any(findings.groups.racks) or distance != Distance.SAME_RACK
        pairs = f"Pairs of the {distance}" if known else "Pairs"
        yield (
            f"{pairs}{where} do {three_digits(median)} GB/s by {tool or 'an unnamed tool'}: "
            f"{three_digits(100 * median / line_rate)}% of the line rate of {line_rate:g} GB/s, "
            f"{scatter}."
        )


def _contention(uplinks: Sequence[RackUplink]) -> Iterable[str]:
    contended = [uplink for uplink in uplinks if uplink.is_contended]
    if contended:
        each = statistics.median(up.at_once_gb_per_s / up.ports for up in contended)
        alone = statistics.median(up.alone_gb_per_s for up in contended)
        racks = listed(dict.fromkeys(uplink.rack for uplink in contended))
        yield (
            f"Between racks ports do {three_digits(each)} GB/s each while all of a rack send, "
            f"{three_digits(alone)} alone, so the links between racks are the limit (congestion "
            f"score {max(uplink.score for uplink in contended):.2f}): {racks}."
        )


def _where(findings: Findings, figures: Sequence[ClassFigure]) -> str:
    """Phrase that names the networks of the figures; empty if there is only one network."""
    networks = {figure.link_class.network for figure in figures}
    if len(networks) > 1:
        return f" in {len(networks)} networks"
    if set(findings.groups.networks) <= {NO_NETWORK, *networks}:
        return ""
    (network,) = networks
    return f" in {findings.groups.subnets[findings.groups.networks.index(network)]}"


def _slow_ports(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    by_port: dict[tuple[Quantity, int], list[SlowPort]] = {}
    for verdict in findings.slow_ports:
        by_port.setdefault((verdict.quantity, verdict.port), []).append(verdict)
    racks = findings.groups.racks
    slow = Counter((quantity, racks[port]) for quantity, port in by_port)
    away = {*findings.unmeasured_ports, *findings.unreachable_ports}
    size = Counter(rack for port, rack in enumerate(racks) if port not in away)
    whole: dict[tuple[Quantity, str], list[SlowPort]] = {}
    for (quantity, port), verdicts in by_port.items():
        rack = racks[port]
        if rack and _FOLDED_FROM <= size[rack] == slow[quantity, rack]:
            whole.setdefault((quantity, rack), []).extend(verdicts)
        else:
            yield f"{_verdict_text(ports[port].label, verdicts)}."
    for (_, rack), verdicts in whole.items():
        subject = f"All {size[rack]} ports of rack {rack}"
        yield f"{_verdict_text(subject, verdicts)}, so look at its switch first."


def _verdict_text(subject: str, verdicts: Sequence[SlowPort]) -> str:
    """Describe verdicts of one quantity about `subject`."""
    quantity = verdicts[0].quantity
    figure = statistics.median(v.figure for v in verdicts)
    expected = statistics.median(v.expected for v in verdicts)
    count = sum(v.measurements for v in verdicts)
    roles = {verdict.role for verdict in verdicts} - {Role.EITHER}
    role = f"{roles.pop().value} " if len(roles) == 1 else ""
    once = "" if any(v.repeated for v in verdicts) else ", not measured again"
    return (
        f"{subject}: {role}{_QUANTITY_WORDS[quantity]}{three_digits(figure)} {_UNITS[quantity]} "
        f"where its class {'does' if quantity is Quantity.BANDWIDTH else 'has'} "
        f"{three_digits(expected)} ({count} measurements{once})"
    )


def _slow_links(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    groups: dict[tuple[Quantity, str], list[SlowLink]] = {}
    for link in findings.slow_links:
        groups.setdefault((link.quantity, _location(findings, link.pair)), []).append(link)
    for (quantity, where), links in groups.items():
        unit = _UNITS[quantity]
        few = links if len(links) < _FOLDED_FROM else ()
        for link in few:
            figures = f"{three_digits(link.figure)} {unit} instead of {three_digits(link.expected)}"
            times = f"{link.measurements} measurement{'s' if link.measurements > 1 else ''}"
            path = _path_text(ports, link.pair)
            yield f"The path {path} is slow, though neither port is: {figures} ({times})."
        if not few:
            first = links[0]
            yield (
                f"{len(links)} paths {where} are slow, though none of their ports is: "
                f"{three_digits(first.figure)} {unit} instead of {three_digits(first.expected)} "
                f"for {_path_text(ports, first.pair)}."
            )


def _location(findings: Findings, pair: PortPair) -> str:
    """Phrase for the racks or subnet of a pair; slow pairs in one location often have one cause."""
    a, b = sorted(findings.groups.racks[end] for end in (pair.client, pair.server))
    if a != b:
        return f"between racks {a} and {b}"
    return f"inside rack {a}" if a else f"in {findings.groups.subnets[pair.client]}"


def _silent(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    names = {port.host: port.host_name for port in ports}
    hosts = [names[host] for host in findings.unreachable_hosts]
    if len(hosts) < _FOLDED_FROM:
        yield from (f"Host {host} is not reached on any port." for host in hosts)
    else:
        yield f"{len(hosts):,} hosts are not reached on any port: {folded(hosts)}."
    whole = set(findings.unreachable_hosts)
    silent = [ports[i] for i in findings.unreachable_ports if ports[i].host not in whole]
    if len(silent) < _FOLDED_FROM:
        for port in silent:
            where = f" ({port.address})" if port.address else ""
            yield f"{port.label}{where} is not reached by any peer."
    else:
        yield from _silent_together(silent)
    if findings.dead_links:
        paths = listed(_path_text(ports, pair) for pair in findings.dead_links)
        yield f"No traffic passes between these ports, which reach other ports: {paths}."


def _silent_together(silent: Sequence[NetworkPort]) -> Iterable[str]:
    """Yield a note for equal NICs of many hosts: a rail or part of it, with one likely cause."""
    hosts_of: dict[str, dict[str, None]] = {}
    for port in silent:
        hosts_of.setdefault(port.os_name, {})[port.host_name] = None
    groups: dict[tuple[str, ...], list[str]] = {}
    for nic, hosts in hosts_of.items():
        groups.setdefault(tuple(hosts), []).append(nic)
    for members, nics in groups.items():
        count = len(members) * len(nics)
        verb = "is" if count == 1 else "are"
        ports = "" if count == 1 else f" ({count:,} ports)"
        yield f"{folded(nics)} of {folded(members)}{ports} {verb} not reached by any peer."


def _recovered(ports: Sequence[NetworkPort], pairs: Sequence[PortPair]) -> Iterable[str]:
    if pairs:
        paths = listed(_path_text(ports, pair) for pair in pairs)
        yield f"Abnormal at first, normal later, so congestion and not a fault: {paths}."


def _failures(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    for failure in findings.failures:
        detail = f": {failure.detail}" if failure.detail else ""
        yield f"{failure.tool}: {failure.failure.value} in {failure.count:,} measurements{detail}."
    has_bandwidth: dict[int, bool] = {}
    for result in findings.results:
        measured = result.bandwidth_gb_per_s is not None
        tried = measured or result.bandwidth_failure is not Failure.TOOL_MISSING
        if tried and findings.groups.in_one_network(result.pair):
            for port in (result.pair.client, result.pair.server):
                has_bandwidth[port] = has_bandwidth.get(port, False) or measured
    unreachable = set(findings.unreachable_ports)
    without = [i for i, has in sorted(has_bandwidth.items()) if not has and i not in unreachable]
    if without:
        names = listed(ports[port].label for port in without)
        yield f"Ports without a measured bandwidth: {names}."


@dataclass(frozen=True, slots=True)
class ClassFigure:
    """Figure of a class of pairs, without outliers."""

    link_class: LinkClass
    quantity: Quantity
    median: float
    spread: float
    """Interquartile range over median."""
    count: int
    width: float = 0.0
    """Range from the 2.5th to the 97.5th percentile, over median."""


@dataclass(frozen=True, slots=True)
class SlowPort:
    """A port that is an outlier in one role, with any peer."""

    port: int
    role: Role
    quantity: Quantity
    figure: float
    """Median of the measurements with normal ports, in GB/s or us."""
    expected: float
    """Figure of its class."""
    measurements: int
    repeated: bool
    """Whether it was measured again as a suspect; False when no port had budget left."""


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A pair that is an outlier though both ports are normal with other peers, or have none."""

    pair: PortPair
    quantity: Quantity
    figure: float
    expected: float
    measurements: int


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Measurements without a figure, by tool and cause, isolated networks excluded."""

    tool: str
    failure: Failure
    count: int
    detail: str
    """Message of the first failure."""


@dataclass(frozen=True)
class Findings:
    """Findings of a campaign; ports are indices in `groups.ports`."""

    groups: PortGroups
    results: tuple[PairResult, ...]
    """All results in the order of measurement."""
    rounds: int
    figures: tuple[ClassFigure, ...]
    slow_ports: tuple[SlowPort, ...]
    slow_links: tuple[SlowLink, ...]
    dead_links: tuple[PortPair, ...]
    """Pairs without traffic, though both ports reach other ports."""
    unreachable_ports: tuple[int, ...]
    unreachable_hosts: tuple[int, ...]
    """Hosts without a measurable port that answers."""
    unmeasured_ports: tuple[int, ...]
    """Ports without a usable address, without a peer, or without a figure (unreachable ports
    excluded)."""
    recovered: tuple[PortPair, ...]
    """Pairs that were outliers at first and normal when measured again."""
    failures: tuple[ToolFailure, ...]
    notes: tuple[str, ...]
    uplinks: tuple[RackUplink, ...] = ()
    """What leaves and enters racks while all of their ports send."""
