"""The rack or switch of every port, by files (`place_in_racks`) and by LLDP (`with_lldp`).

The leaf switch of a port comes before the rack of its host, since NICs of one host may hang at
leaves of their own; what a person gave comes before what a host heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from probes.host.report import HostReport
from probes.network.errors import HierarchyFileError
from probes.network.instruments.processes import run
from probes.network.instruments.tools import Tool, missing_tools
from probes.network.ports import NetworkPort
from probes.network.racks.ibnetdiscover import AdapterPort
from probes.network.racks.lldp import parse_lldp, switch_of_interface

_LLDP_TIMEOUT_S = 5.0
_SHOWN = 6
"""Names in a note before the rest is counted."""


def place_in_racks(
    ports: Sequence[NetworkPort], racks: Mapping[str, str], fabric: Sequence[AdapterPort] = ()
) -> tuple[NetworkPort, ...]:
    """Ports with their racks: the leaf switch where the fabric names the port, else its host's.

    Args:
        ports: of all hosts.
        racks: by host, named in full or without the domain.
        fabric: of `probes.network.racks.ibnetdiscover`.
    """
    leaves = _leaves(fabric)

    def rack(port: NetworkPort) -> str:
        return (
            next(filter(None, map(leaves.get, _adapter_names(port))), "")
            or next(filter(None, map(racks.get, _names(port))), "")
            or port.rack
        )

    return tuple(replace(port, rack=rack(port)) for port in ports)


def not_in_fabric(ports: Sequence[NetworkPort], fabric: Sequence[AdapterPort]) -> tuple[str, ...]:
    """A sentence about RDMA ports that a given fabric does not name, if there are any."""
    leaves = _leaves(fabric)
    absent = [
        port.label
        for port in ports
        if port.rdma_device and not any(name in leaves for name in _adapter_names(port))
    ]
    if not (fabric and absent):
        return ()
    more = f" and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""
    told = "Not in the list of ibnetdiscover by `HOST DEVICE`, so at a leaf switch unknown to it"
    return (f"{told}: {', '.join(absent[:_SHOWN])}{more}.",)


def _leaves(fabric: Sequence[AdapterPort]) -> dict[tuple[str, str, int], str]:
    return {(end.host, end.device, end.port): end.switch for end in fabric}


def _adapter_names(port: NetworkPort) -> list[tuple[str, str, int]]:
    return [(name, port.rdma_device, port.rdma_port) for name in _names(port)]


def _names(port: NetworkPort) -> tuple[str, str]:
    """The host's, and the same without its domain."""
    return port.host_name, port.host_name.partition(".")[0]


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
