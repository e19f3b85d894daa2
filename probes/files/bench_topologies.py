"""Benchmark machines of the synthesis literature, read from a file with an entry each.

    {"a100_2x8": {"gpus": ["n0g0", ...],
                  "links": [{"src": "n0g0", "dst": "n0nvs",
                             "bandwidth_gb_per_s": 300, "latency_us": 0.35}, ...],
                  "allgather_bound_gb_per_s": 346.667}, ...}

An entry is named `FILE.json#entry`. Links define the devices, whose names state the kind: `n0g3`
(or `g3`) a GPU, `n0nic1` a NIC, `n0nvs` the NVSwitches of a node, `fabric` the network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from probes.files.read import read_content
from probes.inputs.messages import first_fault
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.validation import check_structure
from tuccl.errors import MachineError

_NAME = re.compile(r"(?:n(?P<node>\d{1,6}))?(?P<kind>g|nic|nvs)(?P<index>\d{1,6})?")
_KIND = {"g": DeviceKind.GPU, "nic": DeviceKind.NIC, "nvs": DeviceKind.NVSWITCH}
_NETWORK = "fabric"


@dataclass(frozen=True, slots=True)
class BenchTopology:
    """A benchmark machine."""

    topology: Topology
    all_gather_bound_gb_per_s: float
    """The file's bound on the algbw of all_gather; size is a rank's whole output."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _LinkModel(_Model):
    src: str
    dst: str
    bandwidth_gb_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    latency_us: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _EntryModel(_Model):
    gpus: Annotated[list[str], Field(min_length=1)]
    links: list[_LinkModel]
    allgather_bound_gb_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _FileModel(RootModel[dict[str, _EntryModel]]):
    pass


def bench_topology_reference(text: str) -> tuple[Path, str] | None:
    """Split `FILE.json#entry` into file and entry; None for any other text."""
    file, hash_sign, entry = text.rpartition("#")
    return (Path(file), entry) if hash_sign and file.endswith(".json") and entry else None


def read_bench_topologies(path: Path) -> dict[str, BenchTopology]:
    """Read all entries of a file, in its order.

    Raises:
        MachineError: The file cannot be read or is not of this form.
        InvalidTopologyError: An entry describes a machine that cannot exist.
    """
    return parse_bench_topologies(read_content(path), str(path))


def parse_bench_topologies(content: bytes | str, source: str) -> dict[str, BenchTopology]:
    """Parse a file's content as `read_bench_topologies`; `source` is its path, for messages."""
    try:
        entries = _FileModel.model_validate_json(content).root
    except ValidationError as error:
        raise MachineError(
            f"{source}: {first_fault(error)}; give a file of benchmark topologies"
        ) from error
    return {name: _bench_topology(name, entry, source) for name, entry in entries.items()}


def read_bench_topology(path: Path, entry: str) -> BenchTopology:
    """Read one entry of a file; a missing entry raises MachineError."""
    entries = read_bench_topologies(path)
    if entry not in entries:
        raise MachineError(f"{path}: no entry {entry}; it has {', '.join(entries)}")
    return entries[entry]


def _bench_topology(name: str, entry: _EntryModel, source: str) -> BenchTopology:
    where = f"{source}#{name}"
    names = dict.fromkeys(chain(entry.gpus, *((link.src, link.dst) for link in entry.links)))
    devices = {device: _device(device, where) for device in names}
    stated = set(entry.gpus)
    for device in devices.values():
        if (device.kind is DeviceKind.GPU) != (device.name in stated):
            raise MachineError(
                f"{where}: {device.name}: its name and the list of GPUs disagree; name GPUs"
                " n<node>g<index> and list them all"
            )
    links = tuple(
        Link(
            link.src,
            link.dst,
            _link_kind(devices[link.src], devices[link.dst]),
            link.bandwidth_gb_per_s,
            link.latency_us,
            Provenance.SPEC,
            latency_provenance=Provenance.SPEC,
        )
        for link in entry.links
    )
    topology = Topology(name, tuple(devices.values()), links)
    check_structure(topology)
    return BenchTopology(topology, entry.allgather_bound_gb_per_s)


def _device(name: str, where: str) -> Device:
    if name == _NETWORK:
        return Device(name, DeviceKind.NETWORK_SWITCH, NETWORK_NODE)
    match = _NAME.fullmatch(name)
    if match is None:
        raise MachineError(
            f"{where}: {name!a:.60} is not a device name; use n0g0, n0nic0, n0nvs or {_NETWORK}"
        )
    index = int(match["index"] or 0)
    return Device(name, _KIND[match["kind"]], int(match["node"] or 0), index)


def _link_kind(src: Device, dst: Device) -> LinkKind:
    kinds = {src.kind, dst.kind}
    if DeviceKind.NETWORK_SWITCH in kinds:
        return LinkKind.NETWORK
    return LinkKind.PCIE if DeviceKind.NIC in kinds else LinkKind.NVLINK
