"""Sentences for people about what measuring the network found, naming hosts and NICs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from probes.network.campaign.findings import ClassFigure, Findings, SlowLink, SlowPort
from probes.network.campaign.outliers import Quantity, Role
from probes.network.port_groups import NO_NETWORK, Distance
from probes.network.ports import NetworkPort
from probes.network.results import Failure, PortPair
from probes.topology.figure_text import three_digits
from probes.topology.hosts import folded

_SHOWN = 6
"""Names in a list before the rest is counted."""
_FOLDED_FROM = 4
"""Slow ways in one place, or ports of a rack, from which they are one sentence."""
_LIKE_LINE_RATE = (0.88, 1.03)
"""As `probes.topology.bandwidth_class`: a port does 88 to 103 % of what it says."""
_ALIKE = 0.15
"""Spread up to which the figures of a class are called alike; nearly all are in twice of that."""
_WHAT = {Quantity.BANDWIDTH: "", Quantity.LATENCY: "latency "}
_UNIT = {Quantity.BANDWIDTH: "GB/s", Quantity.LATENCY: "us"}


def notes_of(
    ports: Sequence[NetworkPort], findings: Findings, before: Sequence[str] = ()
) -> Findings:
    """The findings with their notes; `before` comes first."""
    notes = [
        *before,
        *_not_measured(ports, findings),
        *_networks(findings),
        *_line_rates(ports, findings),
        *_against_line_rate(findings),
        *_slow_ports(ports, findings),
        *_slow_links(ports, findings),
        *_silent(ports, findings),
        *_recovered(ports, findings.recovered),
        *_failures(ports, findings),
    ]
    return replace(findings, notes=tuple(notes))


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    rest = len(every) - _SHOWN
    return ", ".join(every) if rest <= 0 else f"{', '.join(every[:_SHOWN])} and {rest:,} more"


def _way(ports: Sequence[NetworkPort], pair: PortPair) -> str:
    return f"{ports[pair.client].label} -> {ports[pair.server].label}"


def _not_measured(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    silent = [ports[place].label for place, why in findings.groups.excluded if not why]
    if silent:
        yield f"Ports without an address are not measured: {_listed(silent)}."
    alike: dict[str, list[str]] = {}
    for place, why in findings.groups.excluded:
        if why:
            alike.setdefault(why, []).append(ports[place].label)
    for why, labels in alike.items():
        yield f"{_listed(labels)} {'are' if len(labels) > 1 else 'is'} not measured: {why}."
    tried = {place for place, _ in findings.groups.excluded}
    for result in findings.results:
        ends = (result.pair.client, result.pair.server)
        if findings.networks[ends[0]] == findings.networks[ends[1]]:
            tried.update(ends)
    lonely = [ports[i].label for i in findings.unmeasured_ports if i not in tried]
    if lonely:
        yield f"Ports that have nobody to be measured with in their network: {_listed(lonely)}."


def _networks(findings: Findings) -> Iterable[str]:
    subnets: dict[int, dict[str, None]] = {}
    for network, subnet in zip(findings.networks, findings.groups.subnets, strict=True):
        if network != NO_NETWORK:
            subnets.setdefault(network, {})[subnet] = None
    for members in subnets.values():
        if len(members) > 1:
            yield f"Subnets that reach each other, taken as one network: {_listed(members)}."
    if len(subnets) > 1:
        names = (next(iter(members)) for members in subnets.values())
        yield f"{len(subnets)} networks that do not reach each other: {_listed(names)}."


def _line_rates(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    """NICs of one index that negotiated another speed than most."""
    rails: dict[int, list[NetworkPort]] = {}
    for port, network in zip(ports, findings.networks, strict=True):
        if network != NO_NETWORK and port.line_rate_gb_per_s > 0:
            rails.setdefault(port.nic, []).append(port)
    for members in rails.values():
        usual, _ = Counter(port.line_rate_gb_per_s for port in members).most_common(1)[0]
        odd = [port for port in members if port.line_rate_gb_per_s != usual]
        if odd:
            names = _listed(f"{port.label} ({port.line_rate_gb_per_s:g})" for port in odd)
            yield f"Line rate is {usual:g} GB/s on most hosts, but not of {names}."


def _against_line_rate(findings: Findings) -> Iterable[str]:
    alike: dict[tuple[str, float, str], list[ClassFigure]] = {}
    for figure in findings.figures:
        key = figure.link_class
        if figure.quantity is Quantity.BANDWIDTH and key.line_rate_gb_per_s > 0:
            share = figure.median / key.line_rate_gb_per_s
            if not _LIKE_LINE_RATE[0] <= share <= _LIKE_LINE_RATE[1]:
                group = (key.distance.value, key.line_rate_gb_per_s, key.tool)
                alike.setdefault(group, []).append(figure)
    for (apart, line_rate, tool), members in alike.items():
        middle = statistics.median(figure.median for figure in members)
        spread = max(figure.spread for figure in members)
        where = _where(findings, members)
        width = max(figure.width for figure in members)
        how = "all of them alike" if width < 2 * _ALIKE else f"all but a few {width:.0%} apart"
        if spread >= _ALIKE:
            how = f"with quartiles {spread:.0%} apart"
        known = any(findings.groups.racks) or apart != Distance.SAME_RACK
        pairs = f"Pairs of the {apart}" if known else "Pairs"
        yield (
            f"{pairs}{where} do {three_digits(middle)} GB/s by {tool or 'an unnamed tool'}: "
            f"{three_digits(100 * middle / line_rate)}% of the line rate of {line_rate:g} GB/s, "
            f"{how}."
        )


def _where(findings: Findings, figures: Sequence[ClassFigure]) -> str:
    """In which networks, unless there is one only."""
    networks = {figure.link_class.network for figure in figures}
    if len(networks) > 1:
        return f" in {len(networks)} networks"
    if set(findings.networks) <= {NO_NETWORK, *networks}:
        return ""
    (network,) = networks
    return f" in {findings.groups.subnets[findings.networks.index(network)]}"


def _slow_ports(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    by_port: dict[tuple[Quantity, int], list[SlowPort]] = {}
    for verdict in findings.slow_ports:
        by_port.setdefault((verdict.quantity, verdict.port), []).append(verdict)
    racks = findings.groups.racks
    slow = Counter((quantity, racks[place]) for quantity, place in by_port)
    away = {*findings.unmeasured_ports, *findings.unreachable_ports}
    size = Counter(rack for place, rack in enumerate(racks) if place not in away)
    whole: dict[tuple[Quantity, str], list[SlowPort]] = {}
    for (quantity, place), verdicts in by_port.items():
        rack = racks[place]
        if rack and _FOLDED_FROM <= size[rack] == slow[quantity, rack]:
            whole.setdefault((quantity, rack), []).extend(verdicts)
        else:
            yield f"{_does(ports[place].label, verdicts)}."
    for (_, rack), verdicts in whole.items():
        who = f"All {size[rack]} ports of rack {rack}"
        yield f"{_does(who, verdicts)}, so look at its switch first."


def _does(who: str, verdicts: Sequence[SlowPort]) -> str:
    """What is out of line about `who`, all in one quantity."""
    quantity = verdicts[0].quantity
    figure = statistics.median(v.figure for v in verdicts)
    expected = statistics.median(v.expected for v in verdicts)
    count = sum(v.measurements for v in verdicts)
    roles = {verdict.role for verdict in verdicts} - {Role.EITHER}
    role = f"{roles.pop().value} " if len(roles) == 1 else ""
    once = "" if any(v.repeated for v in verdicts) else ", not measured again"
    return (
        f"{who}: {role}{_WHAT[quantity]}{three_digits(figure)} {_UNIT[quantity]} where "
        f"its class {'does' if quantity is Quantity.BANDWIDTH else 'has'} {three_digits(expected)} "
        f"({count} measurements{once})"
    )


def _slow_links(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    alike: dict[tuple[Quantity, str], list[SlowLink]] = {}
    for link in findings.slow_links:
        alike.setdefault((link.quantity, _place(findings, link.pair)), []).append(link)
    for (quantity, where), links in alike.items():
        unit = _UNIT[quantity]
        few = links if len(links) < _FOLDED_FROM else ()
        for link in few:
            figures = f"{three_digits(link.figure)} {unit} instead of {three_digits(link.expected)}"
            times = f"{link.measurements} measurement{'s' if link.measurements > 1 else ''}"
            yield f"The way {_way(ports, link.pair)} is slow, no port alone: {figures} ({times})."
        if not few:
            first = links[0]
            yield (
                f"{len(links)} ways {where} are slow, no port alone: "
                f"{three_digits(first.figure)} {unit} instead of {three_digits(first.expected)} "
                f"for {_way(ports, first.pair)}."
            )


def _place(findings: Findings, pair: PortPair) -> str:
    """Where a way is: ways of one place have one cause, like as not."""
    one, other = sorted(findings.groups.racks[end] for end in (pair.client, pair.server))
    if one != other:
        return f"between racks {one} and {other}"
    return f"inside rack {one}" if one else f"in {findings.groups.subnets[pair.client]}"


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
        ways = _listed(_way(ports, pair) for pair in findings.dead_links)
        yield f"Nothing comes through between ports that reach others: {ways}."


def _silent_together(silent: Sequence[NetworkPort]) -> Iterable[str]:
    """Ports of one name on many hosts are a rail, or part of it: one cause, most likely."""
    hosts_of: dict[str, dict[str, None]] = {}
    for port in silent:
        hosts_of.setdefault(port.os_name, {})[port.host_name] = None
    alike: dict[tuple[str, ...], list[str]] = {}
    for nic, hosts in hosts_of.items():
        alike.setdefault(tuple(hosts), []).append(nic)
    for members, nics in alike.items():
        count = len(members) * len(nics)
        verb = "is" if count == 1 else "are"
        ports = "" if count == 1 else f" ({count:,} ports)"
        yield f"{folded(nics)} of {folded(members)}{ports} {verb} not reached by any peer."


def _recovered(ports: Sequence[NetworkPort], pairs: Sequence[PortPair]) -> Iterable[str]:
    if pairs:
        ways = _listed(_way(ports, pair) for pair in pairs)
        yield f"Out of line at first, fine later, so congestion and no fault: {ways}."


def _failures(ports: Sequence[NetworkPort], findings: Findings) -> Iterable[str]:
    for failure in findings.failures:
        said = f": {failure.detail}" if failure.detail else ""
        yield f"{failure.tool}: {failure.failure.value} in {failure.count:,} measurements{said}."
    has_bandwidth: dict[int, bool] = {}
    for result in findings.results:
        ends = (result.pair.client, result.pair.server)
        if findings.networks[ends[0]] != findings.networks[ends[1]]:
            continue
        gave = result.bandwidth_gb_per_s is not None
        if gave or result.bandwidth_failure is not Failure.TOOL_MISSING:
            for place in ends:
                has_bandwidth[place] = has_bandwidth.get(place, False) or gave
    away = set(findings.unreachable_ports)
    mute = [i for i, has in sorted(has_bandwidth.items()) if not has and i not in away]
    if mute:
        names = _listed(ports[place].label for place in mute)
        yield f"Ports whose bandwidth no measurement gave: {names}."
