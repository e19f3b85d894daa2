"""The rack or switch of every port, by files (`place_in_racks`) and by LLDP (`with_lldp`).

What a person wrote down comes before what a host heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from probes.host_report import HostReport
from probes.network.errors import HierarchyFileError
from probes.network.lldp import parse_lldp, switch_of_interface
from probes.network.ports import NetworkPort
from probes.network.processes import run
from probes.network.tools import Tool, missing_tools

_LLDP_TIMEOUT_S = 5.0


def place_in_racks(
    ports: Sequence[NetworkPort], racks: Mapping[str, str]
) -> tuple[NetworkPort, ...]:
    """Ports with the rack of their host, where it is known by its name (or without its domain)."""

    def rack(port: NetworkPort) -> str:
        return racks.get(port.host_name) or racks.get(port.host_name.partition(".")[0], "")

    return tuple(replace(port, rack=rack(port) or port.rack) for port in ports)


def with_lldp(report: HostReport) -> HostReport:
    """The report of this host, its ports with the switches that they hear of by LLDP.

    Without lldpd, or when it says nothing of use, the report as it is.
    """
    live = bool(report.identity.network_namespace)
    if not (live and report.ports) or missing_tools((Tool.LLDPCTL,)):
        return report
    ended = run([Tool.LLDPCTL, "-f", "json"], _LLDP_TIMEOUT_S)
    if ended.timed_out or ended.exit_code:
        return report
    try:
        switches = switch_of_interface(parse_lldp(ended.output))
    except HierarchyFileError as error:
        note = f"LLDP: {error}; the racks of this host are not known from it."
        topology = replace(report.topology, notes=(*report.topology.notes, note))
        return replace(report, topology=topology)
    ports = (replace(port, rack=switches.get(port.interface, "")) for port in report.ports)
    return replace(report, ports=tuple(ports))
