"""The JSON form of a `HostReport`, schema version 1, which a host sends to the leader.

    {"schema_version": 1, "identity": {...}, "topology": {...}, "ports": [...],
     "missing_tools": [...],
     "gpu_figures": {"pairs": [{"src": "n0/gpu0", "dst": "n0/gpu1",
                                "copy_engine_gb_per_s": {"median": 394.0, "spread": 0.001}, ...}],
                     "gpus": [{"gpu": "n0/gpu0", "to_host_gb_per_s": null, ...}]}}

The topology is in its own JSON form; `gpu_figures` is absent if GPUs were not measured, `domain`
if they are of no NVLink domain over hosts. An unknown
key is an error: the sender may be another release, and a figure that is silently ignored is a wrong
figure.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from probes.inputs.document import StrictModel, read_document
from probes.network.ports import NetworkPort
from probes.p2p.figures import P2pFigures
from probes.topology.graph import Provenance, Topology
from probes.topology.json_form import topology_from_json, topology_to_json
from probes.topology.validation import check_structure
from tuccl.errors import InvalidTopologyError, MachineError


@dataclass(frozen=True, slots=True, order=True)
class HostIdentity:
    """Identity of a host; containers of one kernel share the boot id, not the namespace."""

    hostname: str
    boot_id: str = ""
    """Contents of /proc/sys/kernel/random/boot_id."""
    network_namespace: str = ""
    """Inode of /proc/self/ns/net."""


@dataclass(frozen=True)
class HostReport:
    """One host: its topology (devices named `n0/...`) and measurable ports (`host` is 0)."""

    identity: HostIdentity
    topology: Topology
    ports: tuple[NetworkPort, ...]
    missing_tools: tuple[str, ...] = ()
    """Names of tools that this host lacks: `ib_write_bw`."""
    gpu_figures: P2pFigures | None = None
    """Figures of its GPUs; None when they were not measured."""
    domain: str = ""
    """Name of the NVLink domain over hosts of its GPUs; empty: of none."""


SCHEMA_VERSION = 1

_Text = Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _Model(StrictModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _IdentityModel(_Model):
    hostname: _Text
    boot_id: _Text
    network_namespace: _Text


class _PortModel(_Model):
    host: _Count
    host_name: _Text
    nic: _Count
    os_name: _Text
    interface: _Text
    rdma_device: _Text
    rdma_port: _Count
    address: _Text
    prefix_length: Annotated[int, Field(ge=0, le=128)]
    line_rate_gb_per_s: Annotated[float, Field(ge=0)]
    line_rate_provenance: Provenance = Provenance.SYSFS
    rack: _Text
    management_address: _Text = ""
    rdma_subnet: _Text = ""
    other_addresses: Annotated[tuple[_Text, ...], Field(max_length=1024)] = ()


class _ReportModel(_Model):
    schema_version: int
    identity: _IdentityModel
    topology: dict[str, object]
    ports: Annotated[tuple[_PortModel, ...], Field(max_length=65536)]
    missing_tools: Annotated[tuple[_Text, ...], Field(max_length=256)]
    gpu_figures: P2pFigures | None = None
    domain: _Text = ""


def report_to_json(report: HostReport) -> str:
    """Format the report as one line of JSON, which fits in a message.

    Raises:
        ValueError: a figure is not a number (`nan`, `inf`), which JSON cannot hold.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "identity": dataclasses.asdict(report.identity),
        "topology": json.loads(topology_to_json(report.topology)),
        "ports": [dataclasses.asdict(port) for port in report.ports],
        "missing_tools": list(report.missing_tools),
    }
    if report.domain:
        content["domain"] = report.domain
    if report.gpu_figures is not None:
        content["gpu_figures"] = dataclasses.asdict(report.gpu_figures)
    return json.dumps(content, allow_nan=False, ensure_ascii=False)


def report_from_json(text: str, source: str) -> HostReport:
    """Parse a report; `source` is its name in errors, usually the host.

    Raises:
        MachineError: not JSON, of another schema version, a field is missing, unknown or
            malformed, the machine cannot exist, or a port belongs to none of its NICs.
    """
    remedy = "install the same release of TuCCL on every host"
    model = read_document(text, source, SCHEMA_VERSION, _ReportModel, remedy)
    topology = topology_from_json(json.dumps(model.topology), source)
    try:
        check_structure(topology)
    except InvalidTopologyError as error:
        raise MachineError(f"{source}: {error}") from error
    report = HostReport(
        identity=HostIdentity(**model.identity.model_dump()),
        topology=topology,
        ports=tuple(NetworkPort(**port.model_dump()) for port in model.ports),
        missing_tools=model.missing_tools,
        gpu_figures=model.gpu_figures,
        domain=model.domain,
    )
    _check_ports(report.ports, topology, source)
    _check_figures(report.gpu_figures, topology, source)
    return report


def _check_ports(ports: tuple[NetworkPort, ...], topology: Topology, source: str) -> None:
    """Check that every port belongs to a NIC of the topology, and no two to the same NIC."""
    nics = {(nic.node, nic.index) for nic in topology.nics}
    for port in ports:
        if (port.host, port.nic) not in nics:
            raise MachineError(
                f"{source}: port {port.os_name!a:.40} belongs to NIC {port.nic} of host "
                f"{port.host}, which the topology does not hold"
            )
    if len({(port.host, port.nic) for port in ports}) < len(ports):
        raise MachineError(f"{source}: two ports of one NIC")


def _check_figures(figures: P2pFigures | None, topology: Topology, source: str) -> None:
    """Check that figures belong to known GPUs or pairs of GPUs, each given once."""
    if figures is None:
        return
    known = {gpu.name for gpu in topology.gpus}
    owners = [*((pair.src, pair.dst) for pair in figures.pairs), *((g.gpu,) for g in figures.gpus)]
    for names in owners:
        if len(set(names)) < len(names) or not known.issuperset(names):
            raise MachineError(
                f"{source}: figures of {' and '.join(names)!a:.60}, which are not GPUs of the "
                "topology"
            )
    if len(set(owners)) < len(owners):
        raise MachineError(f"{source}: figures of GPUs are given twice")
