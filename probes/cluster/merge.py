"""One topology from the reports of many hosts: `merge_hosts`.

Hosts are in natural order of their names (`node2` before `node10`), whatever the order of their
answers. Each host keeps its own measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from probes.comparison.changes import describe_changes
from probes.host.report import HostReport
from probes.inputs.natural_order import natural_key
from probes.network.ports import NetworkPort
from probes.p2p.figures import P2pFigures
from probes.topology.domains import joined
from probes.topology.figure_text import counted
from probes.topology.graph import Topology
from probes.topology.hosts import folded, hosts_alike
from probes.topology.validation import check_structure
from tuccl.errors import InvalidTopologyError


def compare_hosts(cluster: Topology, hosts: Sequence[Topology]) -> tuple[str, ...]:
    """Return sentences about hosts that differ, none when all are alike.

    If more than half of the hosts are of one kind, the others are named with their differences;
    else the kinds are listed. `hosts` has their topologies by node, with devices named `n0/...`.
    """
    kinds = [group.nodes for group in hosts_alike(cluster)]
    if len(kinds) < 2:
        return ()
    names = [folded(cluster.hosts[node] for node in kind) for kind in kinds]
    usual = max(kinds, key=len)
    if 2 * len(usual) <= len(hosts):
        listed = "; ".join(
            f"{name} ({counted(len(hosts[kind[0]].gpus), 'GPU')}, "
            f"{counted(len(hosts[kind[0]].nics), 'NIC')})"
            for name, kind in zip(names, kinds, strict=True)
        )
        return (f"The hosts are of {len(kinds)} kinds: {listed}.",)
    return tuple(
        f"{name} (unlike {len(usual)} of {len(hosts)} hosts): "
        + without_host(" ".join(describe_changes(hosts[usual[0]], hosts[kind[0]])))
        for name, kind in zip(names, kinds, strict=True)
        if kind is not usual
    )


def without_host(text: str) -> str:
    """Shorten the devices' names, as the host is named already: `gpu3` for `n0/gpu3`."""
    return text.replace("n0/", "")


@dataclass(frozen=True)
class MergedHosts:
    """The hosts as one topology, without the network between them."""

    topology: Topology
    ports: tuple[NetworkPort, ...]
    """Ports of all hosts, by host."""
    order: tuple[int, ...]
    """Indices of the reports, by node."""
    odd_hosts: tuple[str, ...] = ()
    """A sentence per host, or per kind of hosts, that differs from the majority."""
    gpu_figures: tuple[P2pFigures | None, ...] = ()
    """Figures of the GPUs, by host."""
    domains: tuple[tuple[int, ...], ...] = ()
    """Hosts of each NVLink domain of several."""

    def joined(self, topology: Topology) -> Topology:
        """Return a topology of these hosts with the hosts of a domain as one node, and a note."""
        if not self.domains:
            return topology
        notes = tuple(
            f"{folded(topology.hosts[host] for host in domain)} are one NVLink domain."
            for domain in self.domains
        )
        return replace(joined(topology, self.domains), notes=(*topology.notes, *notes))


def merge_hosts(reports: Sequence[HostReport], names: Sequence[str] = ()) -> MergedHosts:
    """Merge one or more hosts; of several reports with one identity the first counts.

    `names`, in the order of `reports`, take precedence over the hosts' own names.

    Raises:
        InvalidTopologyError: no host, or a report that breaks a rule of topologies.
    """
    if not reports:
        raise InvalidTopologyError("no host answered, so there is no topology")
    host_names = [
        names[i] if names else report.identity.hostname for i, report in enumerate(reports)
    ]
    first = {report.identity: i for i, report in reversed(list(enumerate(reports)))}
    order = sorted(first.values(), key=lambda i: (natural_key(host_names[i]), reports[i].identity))
    hosts = _distinct([host_names[i] or "unnamed" for i in order])
    machines = [reports[i].topology for i in order]
    topology = Topology(
        name=hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts, {hosts[0]} to {hosts[-1]}",
        devices=tuple(
            replace(device, name=_on_node(device.name, node), node=node)
            for node, machine in enumerate(machines)
            for device in machine.devices
        ),
        links=tuple(
            replace(link, src=_on_node(link.src, node), dst=_on_node(link.dst, node))
            for node, machine in enumerate(machines)
            for link in machine.links
        ),
        notes=(*_notes(machines, hosts), *_duplicate_notes(reports, host_names, order)),
        hosts=tuple(hosts),
        limits=tuple(
            replace(limit, src=_on_node(limit.src, node), dst=_on_node(limit.dst, node))
            for node, machine in enumerate(machines)
            for limit in machine.limits
        ),
    )
    check_structure(topology)
    odd_hosts = compare_hosts(topology, machines)
    topology = replace(topology, notes=(*odd_hosts, *topology.notes))
    ports = tuple(
        replace(port, host=node, host_name=hosts[node])
        for node, i in enumerate(order)
        for port in reports[i].ports
    )
    host_figures = [reports[i].gpu_figures for i in order]
    figures = tuple(figures and figures.on_node(node) for node, figures in enumerate(host_figures))
    domains = _domains([reports[i].domain for i in order])
    return MergedHosts(topology, ports, tuple(order), odd_hosts, figures, domains)


def _domains(names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the hosts of each domain that several are in."""
    hosts: dict[str, list[int]] = {}
    for host, name in enumerate(names):
        if name:
            hosts.setdefault(name, []).append(host)
    return tuple(tuple(members) for members in hosts.values() if len(members) > 1)


def _distinct(names: Sequence[str]) -> list[str]:
    """Append a number to the names of hosts that share one (containers, clones of an image)."""
    count, seen = Counter(names), Counter[str]()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(f"{name} ({seen[name]})" if count[name] > 1 else name)
    return distinct


def _on_node(name: str, node: int) -> str:
    return f"n{node}/{name.removeprefix('n0/')}"


def _notes(machines: Sequence[Topology], hosts: Sequence[str]) -> list[str]:
    """Prefix each note with its hosts; a single host is not named."""
    if len(hosts) == 1:
        return list(machines[0].notes)
    hosts_of: dict[str, list[str]] = {}
    for machine, host in zip(machines, hosts, strict=True):
        for note in dict.fromkeys(machine.notes):
            hosts_of.setdefault(without_host(note), []).append(host)
    all_hosts = f"all {len(hosts)} hosts"
    return [
        f"{all_hosts if len(names) == len(hosts) else folded(names)}: {note}"
        for note, names in hosts_of.items()
    ]


def _duplicate_notes(
    reports: Sequence[HostReport], host_names: Sequence[str], order: Sequence[int]
) -> list[str]:
    kept = {reports[i].identity: host_names[i] for i in order}
    return [
        f"{host_names[i]} is the same host as {kept[report.identity]}, and was counted once."
        for i, report in enumerate(reports)
        if i not in order
    ]
