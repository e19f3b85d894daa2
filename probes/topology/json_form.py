"""The JSON form of a `Topology`, schema version 2.

    {"schema_version": 2, "name": ..., "hosts": [...], "devices": [...], "links": [...],
     "limits": [...], "notes": [...]}

Keys appear in the order of the dataclasses, devices and links in the order of the topology, so
equal topologies give equal text. An unknown key or version is an error: a figure that is silently
ignored is a wrong figure.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from probes.inputs.document import StrictModel, read_document
from probes.topology.graph import (
    Device,
    DeviceKind,
    Link,
    LinkKind,
    PairLimit,
    Provenance,
    Topology,
)
from probes.topology.validation import MAX_NAME, MODEL_RULE, is_model

SCHEMA_VERSION = 2


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text!a:.60} must have printable characters only")
    return text


_Count = Annotated[int, Field(ge=-1, lt=2**31)]
_Bytes = Annotated[int, Field(ge=0, lt=2**53)]
_Text = Annotated[str, Field(max_length=4096), AfterValidator(_printable)]
_Title = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_printable)]
_Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]


class _DeviceModel(StrictModel):
    name: _Name
    kind: DeviceKind
    node: _Count
    index: _Count = 0
    model: _Text = ""
    bus_id: _Text = ""
    compute_capability: _Count = 0
    line_rate_gb_per_s: float = 0.0
    line_rate_provenance: Provenance = Provenance.SYSFS
    os_name: _Text = ""
    memory_bytes: _Bytes = 0
    host_in_node: Annotated[int, Field(ge=0, lt=2**31)] = 0
    lacks_multicast: bool = False
    network_sums: bool = False

    @model_validator(mode="after")
    def _model_is_an_id(self) -> Self:
        if not is_model(self.model):
            raise ValueError(f"device '{self.name}': {MODEL_RULE}, not {self.model!a:.40}")
        return self


class _LinkModel(StrictModel):
    src: _Name
    dst: _Name
    kind: LinkKind
    bandwidth_gb_per_s: float
    latency_us: float
    provenance: Provenance
    lanes: _Count = 1
    latency_provenance: Provenance = Provenance.ASSUMED
    spread: float = 0.0


class _LimitModel(StrictModel):
    src: _Name
    dst: _Name
    bandwidth_gb_per_s: float
    spread: float = 0.0


class _TopologyModel(StrictModel):
    schema_version: int
    name: _Title
    devices: tuple[_DeviceModel, ...]
    links: tuple[_LinkModel, ...]
    notes: tuple[_Text, ...] = ()
    hosts: tuple[_Title, ...] = ()
    limits: tuple[_LimitModel, ...] = ()


def topology_to_json(topology: Topology) -> str:
    """Format the topology as JSON, with a newline at the end.

    Raises:
        ValueError: a figure is not a number (`nan`, `inf`), which JSON cannot hold.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "name": topology.name,
        "hosts": list(topology.hosts),
        "devices": [_device_record(device) for device in topology.devices],
        "links": [dataclasses.asdict(link) for link in topology.links],
        "limits": [dataclasses.asdict(limit) for limit in topology.limits],
        "notes": list(topology.notes),
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _device_record(device: Device) -> dict[str, object]:
    """Return the fields of a device.

    The number of its host only where a node has several, the origin of its line rate only where
    that is not what the host states, multicast only where it is known to be missing, a network that
    sums only where it is known to.
    """
    record = dataclasses.asdict(device)
    if device.line_rate_provenance is Provenance.SYSFS:
        del record["line_rate_provenance"]
    if not device.host_in_node:
        del record["host_in_node"]
    if not device.lacks_multicast:
        del record["lacks_multicast"]
    if not device.network_sums:
        del record["network_sums"]
    return record


def topology_from_json(text: str, source: str) -> Topology:
    """Parse a topology; checks names and models only.

    The rest is checked by `probes.topology.validation`. `source` is its name in errors.

    Raises:
        MachineError: not JSON, of another schema version, or a field is missing, unknown or
            malformed.
    """
    model = read_document(text, source, SCHEMA_VERSION, _TopologyModel, "probe the machine again")
    return Topology(
        name=model.name,
        devices=tuple(Device(**device.model_dump()) for device in model.devices),
        links=tuple(Link(**link.model_dump()) for link in model.links),
        notes=model.notes,
        hosts=model.hosts,
        limits=tuple(PairLimit(**limit.model_dump()) for limit in model.limits),
    )
