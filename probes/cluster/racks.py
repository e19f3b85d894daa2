"""The rack or switch of every port, by files (`place_in_racks`) and by LLDP (`with_lldp`).

The leaf switch of a port takes precedence over the rack of its host, since the NICs of one host may
have different leaf switches; the user's files take precedence over LLDP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from probes.host.report import HostReport
from probes.network.instruments.processes import run
from probes.network.instruments.tools import Tool, missing_tools
from probes.network.ports import NetworkPort
from probes.network.racks.ibnetdiscover import AdapterPort
from probes.network.racks.lldp import parse_lldp, switch_of_interface
from tuccl.errors import MachineError

_LLDP_TIMEOUT_S = 5.0
_MAX_SHOWN = 6
"""Most names in a note; the rest is counted."""


def place_in_racks(
    ports: Sequence[NetworkPort], racks: Mapping[str, str], fabric: Sequence[AdapterPort] = ()
) -> tuple[NetworkPort, ...]:
    """Set the rack of each port: the leaf switch if the fabric names the port, else its host's.

    `racks` has the racks by host name, with or without the domain.
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
    """Return a sentence about RDMA ports that the given fabric does not name, if any."""
    leaves = _leaves(fabric)
    absent = [
        port.label
        for port in ports
        if port.rdma_device and not any(name in leaves for name in _adapter_names(port))
    ]
    if not (fabric and absent):
        return ()
    more = f" and {len(absent) - _MAX_SHOWN:,} more" if len(absent) > _MAX_SHOWN else ""
    problem = "Not in the list of ibnetdiscover by `HOST DEVICE`, so at a leaf switch unknown to it"
    return (f"{problem}: {', '.join(absent[:_MAX_SHOWN])}{more}.",)


def _leaves(fabric: Sequence[AdapterPort]) -> dict[tuple[str, str, int], str]:
    return {(end.host, end.device, end.port): end.switch for end in fabric}


def _adapter_names(port: NetworkPort) -> list[tuple[str, str, int]]:
    return [(name, port.rdma_device, port.rdma_port) for name in _names(port)]


def _names(port: NetworkPort) -> tuple[str, str]:
    """The host's name with and without its domain."""
    return port.host_name, port.host_name.partition(".")[0]


def with_lldp(report: HostReport) -> HostReport:
    """Add the switches that LLDP reports to the ports of this host.

    The report is unchanged if lldpd is missing or its output is of no use.
    """
    live = bool(report.identity.network_namespace)
    if not (live and report.ports) or missing_tools((Tool.LLDPCTL,)):
        return report
    result = run([Tool.LLDPCTL, "-f", "json"], _LLDP_TIMEOUT_S)
    if result.timed_out or result.exit_code:
        return report
    try:
        switches = switch_of_interface(parse_lldp(result.output))
    except MachineError as error:
        note = f"LLDP: {error}; the racks of this host are not known from it."
        topology = replace(report.topology, notes=(*report.topology.notes, note))
        return replace(report, topology=topology)
    ports = (replace(port, rack=switches.get(port.interface, "")) for port in report.ports)
    return replace(report, ports=tuple(ports))
