"""The rack or switch of every port, by files and addresses (`place_in_racks`) and by LLDP.

The leaf switch of a port takes precedence over the rack of its host, since the NICs of one host may
have different leaf switches. Files take precedence over prefixes of addresses, these over LLDP.

LLDP is read from `lldpctl -f json` (lldpd 1.0); several interfaces are a list of such objects:

    {"lldp": {"interface": {"eth0": {"chassis": {"leaf1": {...}}}}}}

A chassis without a name is identified by its id, usually a MAC address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, ValidationError

from probes.host.report import HostReport
from probes.inputs.messages import listed
from probes.network.instruments.processes import run
from probes.network.instruments.tools import Tool, missing_tools
from probes.network.ports import NetworkPort
from probes.network.racks.address_prefixes import RackPrefixes
from probes.network.racks.ibnetdiscover import AdapterPort
from tuccl.errors import MachineError


class _Entry(BaseModel):
    chassis: dict[str, object]

    @property
    def switch(self) -> str:
        """The key below `chassis`; a chassis without a name has its properties there instead."""
        identity = self.chassis.get("id")
        if isinstance(identity, dict) and "value" in identity:
            return str(identity["value"])
        return next(iter(self.chassis), "")


_Interfaces = dict[str, _Entry | list[_Entry]]


class _Lldp(BaseModel):
    interface: _Interfaces | list[_Interfaces] = {}


class _Output(BaseModel):
    lldp: _Lldp


def parse_lldp(text: str) -> dict[str, str]:
    """Return the switch of every interface that has only one.

    Raises:
        MachineError: the text is cut, or of another form.
    """
    if not text.strip():
        return {}
    try:
        interfaces = _Output.model_validate_json(text).lldp.interface
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]["msg"]
        raise MachineError(
            f"lldpctl: the JSON is cut or not that of `lldpctl -f json`: {fault:.60}"
        ) from error
    switches: dict[str, set[str]] = {}
    for group in interfaces if isinstance(interfaces, list) else [interfaces]:
        for interface, entries in group.items():
            found = entries if isinstance(entries, list) else [entries]
            names = {entry.switch for entry in found if entry.switch}
            switches.setdefault(interface, set()).update(names)
    return {name: found.pop() for name, found in switches.items() if len(found) == 1}


_LLDP_TIMEOUT_S = 5.0


def place_in_racks(
    ports: Sequence[NetworkPort],
    racks: Mapping[str, str],
    fabric: Sequence[AdapterPort] = (),
    prefixes: RackPrefixes = RackPrefixes(),  # noqa: B008 - frozen
) -> tuple[NetworkPort, ...]:
    """Set the rack of each port: the leaf switch if the fabric names the port, else its host's.

    `racks` has the racks by host name, with or without the domain.
    """
    leaves = _leaves(fabric)

    def rack(port: NetworkPort) -> str:
        return (
            next(filter(None, map(leaves.get, _adapter_names(port))), "")
            or next(filter(None, map(racks.get, _names(port))), "")
            or prefixes.rack_of(port)
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
    problem = "Not in the list of ibnetdiscover by `HOST DEVICE`, so at a leaf switch unknown to it"
    return (f"{problem}: {listed(absent)}.",)


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
        switches = parse_lldp(result.output)
    except MachineError as error:
        note = f"LLDP: {error}; the racks of this host are not known from it."
        topology = replace(report.topology, notes=(*report.topology.notes, note))
        return replace(report, topology=topology)
    ports = (replace(port, rack=switches.get(port.interface, "")) for port in report.ports)
    return replace(report, ports=tuple(ports))
