"""One topology from the reports of many hosts: `merge_hosts`.

Hosts count in the natural order of their names (`node2` before `node10`), so the order in which
they answered leaves no trace. What a host measured of itself stays its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from probes.cluster.likeness import compare_hosts, without_host
from probes.errors import InvalidTopologyError
from probes.host.report import HostReport
from probes.network.ports import NetworkPort
from probes.p2p.figures import P2pFigures
from probes.topology.graph import Topology
from probes.topology.hosts import folded
from probes.topology.validation import check_structure


@dataclass(frozen=True)
class MergedHosts:
    """The hosts as one machine, without the network between them."""

    topology: Topology
    ports: tuple[NetworkPort, ...]
    """Of all hosts, by host."""
    order: tuple[int, ...]
    """Place in the list of reports of the host that became `n{i}`."""
    odd_ones: tuple[str, ...] = ()
    """A sentence per host, or per kind of hosts, that is not like the others."""
    gpu_figures: tuple[P2pFigures | None, ...] = ()
    """By host."""


def merge_hosts(reports: Sequence[HostReport], names: Sequence[str] = ()) -> MergedHosts:
    """Put hosts together; two reports of one identity are one host, the first counts.

    Args:
        reports: one or more.
        names: of the hosts by place in `reports`, where they are known better than by what the
            hosts call themselves.

    Raises:
        InvalidTopologyError: no host, or a report that breaks a rule of topologies.
    """
    if not reports:
        raise InvalidTopologyError("no host answered: there is nothing to make a topology of")
    said = [names[i] if names else report.identity.hostname for i, report in enumerate(reports)]
    first = {report.identity: i for i, report in reversed(list(enumerate(reports)))}
    order = sorted(first.values(), key=lambda i: (_natural(said[i]), reports[i].identity))
    hosts = _distinct([said[i] or "unnamed" for i in order])
    machines = [reports[i].topology for i in order]
    topology = Topology(
        name=hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts, {hosts[0]} to {hosts[-1]}",
        devices=tuple(
            replace(device, name=_moved(device.name, node), node=node)
            for node, machine in enumerate(machines)
            for device in machine.devices
        ),
        links=tuple(
            replace(link, src=_moved(link.src, node), dst=_moved(link.dst, node))
            for node, machine in enumerate(machines)
            for link in machine.links
        ),
        notes=(*_notes(machines, hosts), *_twice(reports, said, order)),
        hosts=tuple(hosts),
        limits=tuple(
            replace(limit, src=_moved(limit.src, node), dst=_moved(limit.dst, node))
            for node, machine in enumerate(machines)
            for limit in machine.limits
        ),
    )
    check_structure(topology)
    odd_ones = compare_hosts(topology, machines)
    topology = replace(topology, notes=(*odd_ones, *topology.notes))
    ports = tuple(
        replace(port, host=node, host_name=hosts[node])
        for node, place in enumerate(order)
        for port in reports[place].ports
    )
    told = [reports[place].gpu_figures for place in order]
    figures = tuple(figures and figures.on_node(node) for node, figures in enumerate(told))
    return MergedHosts(topology, ports, tuple(order), odd_ones, figures)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Numbers in a name count as numbers."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [_place(part) for part in parts]


def _place(part: str) -> tuple[int, int, str]:
    """Compares numbers of any length by their digits, without converting them."""
    if not "0" <= part[0] <= "9":
        return 0, 0, part
    digits = part.lstrip("0")
    return 1, len(digits), digits


def _distinct(names: Sequence[str]) -> list[str]:
    """Hosts of one name (containers, clones of an image) are told apart by a number."""
    count, seen = Counter(names), Counter[str]()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(f"{name} ({seen[name]})" if count[name] > 1 else name)
    return distinct


def _moved(name: str, node: int) -> str:
    return f"n{node}/{name.removeprefix('n0/')}"


def _notes(machines: Sequence[Topology], hosts: Sequence[str]) -> list[str]:
    """Notes with the hosts that made them; one host alone needs no naming."""
    if len(hosts) == 1:
        return list(machines[0].notes)
    said_by: dict[str, list[str]] = {}
    for machine, host in zip(machines, hosts, strict=True):
        for note in dict.fromkeys(machine.notes):
            said_by.setdefault(without_host(note), []).append(host)
    everyone = f"all {len(hosts)} hosts"
    return [
        f"{everyone if len(who) == len(hosts) else folded(who)}: {note}"
        for note, who in said_by.items()
    ]


def _twice(reports: Sequence[HostReport], said: Sequence[str], order: Sequence[int]) -> list[str]:
    kept = {reports[i].identity: said[i] for i in order}
    return [
        f"{said[i]} is the same host as {kept[report.identity]}, and was counted once."
        for i, report in enumerate(reports)
        if i not in order
    ]
