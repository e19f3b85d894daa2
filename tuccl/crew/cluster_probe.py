"""The probe of a machine, `probe_cluster`: probes all hosts, merges, measures their network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from probes.cluster.merge import MergedHosts, merge_hosts
from probes.cluster.racks import not_in_fabric, place_in_racks, with_lldp
from probes.host.probe import HostProbeOptions, probe_host
from probes.host.report import HostReport, report_from_json
from probes.inputs.messages import printable
from probes.network.addresses import with_common_addresses
from probes.network.campaign.fabric import attach_network
from probes.network.campaign.findings import Findings
from probes.network.campaign.idle_pairs import Utilisation
from probes.network.campaign.run import run_campaign
from probes.network.campaign.uplinks import shared_uplinks
from probes.network.campaign.verdicts import Evidence, conclude
from probes.network.instruments.tools import Tool, install_hint
from probes.network.port_groups import group_ports
from probes.network.ports import NetworkPort, PortPair
from probes.network.racks.address_prefixes import RackPrefixes
from probes.network.racks.ibnetdiscover import AdapterPort
from probes.p2p.figures import P2pFigures
from probes.topology.graph import Topology
from probes.topology.hosts import folded
from tuccl.crew.asking import Lost
from tuccl.crew.messages import Failed
from tuccl.crew.places import Places, first_places
from tuccl.crew.probe_rounds import CrewMeasurement
from tuccl.crew.probe_station import Look
from tuccl.errors import HostsMissingError, MachineError

Progress = Callable[[str, int, int], None]
"""Receives the stage, the number of steps done, and the total."""
_LONGEST_REASON = 1000
_MAX_NAMED = 20
"""Most hosts that an error names with their reasons."""


@dataclass(frozen=True)
class ClusterOptions:
    """Options of the probe of a cluster."""

    host: HostProbeOptions
    network: bool = True
    """Whether to measure the network between hosts."""
    seconds_per_pair: int = 2
    """Duration of a bandwidth measurement."""
    host_timeout_s: float = 120.0
    """Time limit for a host to start and probe itself, GPU measurement included."""
    allow_missing: bool = False
    racks: Mapping[str, str] = field(default_factory=dict)
    """Rack by host name."""
    fabric: Sequence[AdapterPort] = ()
    """Leaf switches of InfiniBand ports."""
    prefixes: RackPrefixes = field(default_factory=RackPrefixes)
    """Prefixes of the addresses of racks."""
    utilisation: Utilisation | None = None
    names_are_given: bool = False
    """Whether the names of the places take precedence over the hosts' own."""


@dataclass(frozen=True)
class ProbeResult:
    """What a probe found: the machine, and the faults of its hosts and network."""

    topology: Topology
    ports: tuple[NetworkPort, ...]
    """Ports of all hosts."""
    findings: Findings | None
    """Findings about the network, if there are several hosts."""
    missing: tuple[Lost, ...]
    """Hosts that did not answer, or stopped answering while the network was measured."""
    odd_hosts: tuple[str, ...]
    """A sentence per host, or per kind of hosts, that differs from the majority."""
    seconds: Mapping[str, float]
    """Durations by stage: `look`, `network`."""
    gpu_figures: tuple[P2pFigures | None, ...] = ()
    """Figures of the GPUs by host, if they were measured."""

    @cached_property
    def faults(self) -> Mapping[str, Sequence[str]]:
        """Ports, connections and hosts with a fault, by kind of fault; empty for a single host."""
        if self.findings is None:
            return {}
        findings, labels = self.findings, [port.label for port in self.ports]

        def way(pair: PortPair) -> str:
            return f"{labels[pair.client]} -> {labels[pair.server]}"

        return {
            "slow_ports": list(dict.fromkeys(labels[slow.port] for slow in findings.slow_ports)),
            "slow_links": [way(slow.pair) for slow in findings.slow_links],
            "dead_links": [way(pair) for pair in findings.dead_links],
            "unreachable_ports": [labels[place] for place in findings.unreachable_ports],
            "unreachable_hosts": [self.topology.hosts[host] for host in findings.unreachable_hosts],
        }

    @property
    def is_sound(self) -> bool:
        """Whether all hosts answered and are alike, and the network has no fault."""
        return not (self.missing or self.odd_hosts or any(self.faults.values()))


def _silent(_stage: str, _done: int, _total: int) -> None:
    """Ignore progress, for callers without a display."""


def probe_cluster(
    places: Places | None, options: ClusterOptions, on_progress: Progress = _silent
) -> ProbeResult:
    """Probe all hosts, then the network between them.

    Args:
        places: The hosts' places; this host alone if left out.
        options: The options.
        on_progress: Called with the stage, the steps done, and their number.

    Raises:
        HostsMissingError: Hosts did not answer and that is not allowed, or none answered.
        MachineError: The hosts describe a machine that cannot exist.
    """
    started = time.monotonic()
    hosts = [0] if places is None else first_places(places.places)
    on_progress("hosts", 0, len(hosts))
    missing: list[Lost] = []
    reports = (
        {0: with_lldp(probe_host(options.host))}
        if places is None
        else _reports(places, hosts, options, missing)
    )
    on_progress("hosts", len(hosts), len(hosts))
    if not reports or (missing and not options.allow_missing):
        raise HostsMissingError(_missing_text(missing, len(hosts), allowed=bool(reports)))
    answered = list(reports)
    names: list[str] = []
    if places is not None and options.names_are_given:
        names = [places.places[place].host for place in answered]
    merged = merge_hosts(list(reports.values()), names)
    order = [answered[i] for i in merged.order]
    missing_tools = [reports[place].missing_tools for place in order]
    ports = with_common_addresses(merged.ports)
    ports = place_in_racks(ports, options.racks, options.fabric, options.prefixes)
    merged = replace(merged, ports=ports)
    hosts_done = time.monotonic()
    topology, findings = merged.topology, None
    if places is not None and len(order) > 1:
        measurement = CrewMeasurement(
            places, merged.ports, order, missing_tools, options.seconds_per_pair
        )
        if options.network:
            findings = _measure(measurement, merged, options, on_progress)
        else:
            findings = _not_measured(merged.ports)
        topology = attach_network(topology, findings)
        missing += [
            Lost(topology.hosts[host], f"{reason}, while the network was measured")
            for host, reason in measurement.lost.items()
        ]
    notes = [f"{absent.name} is missing: {absent.reason}." for absent in missing]
    notes += not_in_fabric(merged.ports, options.fabric)
    notes += _tool_notes(missing_tools, topology.hosts)
    topology = merged.joined(replace(topology, notes=(*notes, *topology.notes)))
    return ProbeResult(
        topology=topology,
        ports=merged.ports,
        findings=findings,
        missing=tuple(missing),
        odd_hosts=merged.odd_hosts,
        seconds={"look": hosts_done - started, "network": time.monotonic() - hosts_done},
        # They are told by host.
        gpu_figures=() if merged.domains else merged.gpu_figures,
    )


def _reports(
    places: Places, hosts: Sequence[int], options: ClusterOptions, missing: list[Lost]
) -> dict[int, HostReport]:
    """Return the reports of hosts by place, and note the hosts that gave none."""
    answers = places.ask(dict.fromkeys(hosts, Look(options.host)), options.host_timeout_s)
    reports: dict[int, HostReport] = {}
    for place, answer in answers.items():
        name = places.places[place].host
        if isinstance(answer, Lost):
            missing.append(answer)
        elif isinstance(answer, Failed):
            missing.append(Lost(name, printable(answer.reason, _LONGEST_REASON)))
        else:
            try:
                reports[place] = report_from_json(answer.text, name)
            except MachineError as error:
                missing.append(Lost(name, str(error)))
    return reports


def _measure(
    measurement: CrewMeasurement,
    merged: MergedHosts,
    options: ClusterOptions,
    on_progress: Progress,
) -> Findings:
    conflicts = shared_uplinks(merged.topology, merged.ports)
    try:
        return run_campaign(merged.ports, measurement, options.utilisation, on_progress, conflicts)
    finally:
        measurement.stop()


def _not_measured(ports: Sequence[NetworkPort]) -> Findings:
    """Findings about an unmeasured network: subnets and line rates."""
    note = "The network was not measured, as asked: links have the line rates of their ports."
    return replace(conclude(Evidence(group_ports(ports))), notes=(note,))


def _tool_notes(missing: Sequence[Sequence[str]], hosts: Sequence[str]) -> list[str]:
    """Return notes about missing tools, which only the network between hosts needs."""
    lacking = {
        tool: [host for host, lacks in zip(hosts, missing, strict=True) if tool in lacks]
        for tool in Tool
    }
    return [
        f"{tool} is not installed on {folded(names)}: {install_hint(tool)}."
        for tool, names in lacking.items()
        if names and len(hosts) > 1
    ]


def _missing_text(missing: list[Lost], count: int, *, allowed: bool) -> str:
    reasons = "; ".join(f"{absent.name}: {absent.reason}" for absent in missing[:_MAX_NAMED])
    more = f"; and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    remedy = "mend them, or go on without them with --allow-missing" if allowed else "mend them"
    return f"{len(missing)} of {count} hosts did not answer ({reasons}{more}); {remedy}"
