"""The probe of a cluster, `probe_cluster`: probes all hosts, merges, measures their network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from probes.cluster.crew import Crew, HostFailure
from probes.cluster.merge import MergedHosts, merge_hosts
from probes.cluster.messages import Look, Looked
from probes.cluster.racks import not_in_fabric, place_in_racks
from probes.cluster.rounds import CrewMeasurement
from probes.host.probe import HostProbeOptions
from probes.host.report import HostReport
from probes.host.report_json import report_from_json
from probes.network.campaign.fabric import attach_network
from probes.network.campaign.findings import Findings
from probes.network.campaign.run import run_campaign
from probes.network.campaign.sampling import SamplingOptions
from probes.network.campaign.uplinks import shared_uplinks
from probes.network.campaign.verdicts import Evidence, conclude
from probes.network.common_subnets import with_common_addresses
from probes.network.instruments.tools import Tool, install_hint
from probes.network.port_groups import group_ports, join_networks
from probes.network.ports import NetworkPort
from probes.network.racks.ibnetdiscover import AdapterPort
from probes.p2p.figures import P2pFigures
from probes.topology.graph import Topology
from probes.topology.hosts import folded
from tuccl.errors import HostsMissingError, MachineError

Progress = Callable[[str, int, int], None]
"""Receives the stage, the number of steps done, and the total."""
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
    sampling: SamplingOptions | None = None


@dataclass(frozen=True)
class ClusterProbe:
    """Result of the probe of a cluster."""

    topology: Topology
    ports: tuple[NetworkPort, ...]
    """Ports of all hosts."""
    findings: Findings | None
    """Findings about the network; None when the topology is one host."""
    missing: tuple[HostFailure, ...]
    """Hosts that did not answer, or stopped answering while the network was measured."""
    odd_hosts: tuple[str, ...]
    """A sentence per host, or per kind of hosts, that differs from the majority."""
    seconds: Mapping[str, float]
    """Durations by stage: `look`, `network`."""
    gpu_figures: tuple[P2pFigures | None, ...] = ()
    """Figures of the GPUs by host; None where GPUs were not measured."""


def _silent(_stage: str, _done: int, _total: int) -> None:
    """Ignore progress, for callers without a display."""


def probe_cluster(
    crew: Crew, options: ClusterOptions, on_progress: Progress = _silent
) -> ClusterProbe:
    """Probe all hosts of a crew, then the network between them.

    Raises:
        HostsMissingError: hosts did not answer and that is not allowed, or none answered.
        MachineError: the hosts describe a machine that cannot exist.
    """
    started = time.monotonic()
    reports, crew_index, missing = _look(crew, options, on_progress)
    if not reports or (missing and not options.allow_missing):
        raise HostsMissingError(_missing_text(missing, len(crew.names), allowed=bool(reports)))
    names = [crew.names[i] for i in crew_index] if crew.names_are_given else []
    merged = merge_hosts(reports, names)
    ports = with_common_addresses(merged.ports)
    merged = replace(merged, ports=place_in_racks(ports, options.racks, options.fabric))
    hosts_done = time.monotonic()
    topology, findings = merged.topology, None
    if len(merged.order) > 1:
        measurement = CrewMeasurement(
            crew,
            merged.ports,
            [crew_index[i] for i in merged.order],
            [reports[i].missing_tools for i in merged.order],
            options.seconds_per_pair,
        )
        if options.network:
            findings = _measure(measurement, merged, options, on_progress)
        else:
            findings = _not_measured(merged.ports)
        topology = attach_network(topology, merged.ports, findings)
        missing += [
            HostFailure(topology.hosts[host], f"{reason}, while the network was measured")
            for host, reason in measurement.lost.items()
        ]
    notes = [f"{absent.name} is missing: {absent.reason}." for absent in missing]
    notes += not_in_fabric(merged.ports, options.fabric)
    notes += _tool_notes([reports[i].missing_tools for i in merged.order], topology.hosts)
    return ClusterProbe(
        topology=replace(topology, notes=(*notes, *topology.notes)),
        ports=merged.ports,
        findings=findings,
        missing=tuple(missing),
        odd_hosts=merged.odd_hosts,
        seconds={"look": hosts_done - started, "network": time.monotonic() - hosts_done},
        gpu_figures=merged.gpu_figures,
    )


def _look(
    crew: Crew, options: ClusterOptions, on_progress: Progress
) -> tuple[list[HostReport], list[int], list[HostFailure]]:
    """Return the reports, their indices in the crew, and the hosts that gave none."""
    count = len(crew.names)
    on_progress("hosts", 0, count)
    look = Look(options=options.host)
    answers = crew.ask(dict.fromkeys(range(count), look), options.host_timeout_s)
    on_progress("hosts", count, count)
    reports: list[HostReport] = []
    crew_index: list[int] = []
    missing: list[HostFailure] = []
    for index, answer in answers.items():
        if isinstance(answer, Looked):
            try:
                reports.append(report_from_json(answer.report, crew.names[index]))
                crew_index.append(index)
            except MachineError as error:
                missing.append(HostFailure(crew.names[index], str(error)))
        elif isinstance(answer, HostFailure):
            missing.append(answer)
    return reports, crew_index, missing


def _measure(
    measurement: CrewMeasurement,
    merged: MergedHosts,
    options: ClusterOptions,
    on_progress: Progress,
) -> Findings:
    conflicts = shared_uplinks(merged.topology, merged.ports)
    try:
        return run_campaign(merged.ports, measurement, options.sampling, on_progress, conflicts)
    finally:
        measurement.stop()


def _not_measured(ports: Sequence[NetworkPort]) -> Findings:
    """Findings about an unmeasured network: subnets and line rates."""
    groups = group_ports(ports)
    networks = join_networks(groups, ())
    evidence = Evidence(
        ports=tuple(ports),
        groups=groups,
        networks=networks,
        results=(),
        suspected=frozenset(),
        repeated=frozenset(),
        rounds=0,
        notes=(),
    )
    note = "The network was not measured, as asked: links have the line rates of their ports."
    return replace(conclude(evidence), notes=(note,))


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


def _missing_text(missing: list[HostFailure], count: int, *, allowed: bool) -> str:
    reasons = "; ".join(f"{absent.name}: {absent.reason}" for absent in missing[:_MAX_NAMED])
    more = f"; and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    remedy = "mend them, or go on without them with --allow-missing" if allowed else "mend them"
    return f"{len(missing)} of {count} hosts did not answer ({reasons}{more}); {remedy}"
