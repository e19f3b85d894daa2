"""`HostRecord`: the host that a table was measured on, for later checks whether it changed.

Its structure is that of a probe without measurements, so that the same probe later gives the same
where nothing changed. In a job of several hosts it is the host of rank 0.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from probes.host.probe import HostProbeOptions, probe_host
from probes.inputs.regular_file import read_regular_file
from probes.nvidia.gpu_settings import GpuSettings, GpuStates, read_gpu_states
from probes.topology.graph import Topology
from probes.topology.json_form import topology_from_json, topology_to_json
from tuccl.errors import MachineError
from tuccl.measuring.workers.congestion import congestion_control


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host as it was."""

    host: str
    driver: str
    """Version of the GPUs' driver; empty: unknown."""
    congestion_control: str
    """TCP's algorithm for new connections; empty: unknown."""
    gpus: tuple[GpuSettings, ...]
    """Settings by NVML's index."""
    structure: dict[str, JsonValue]
    """Topology of a probe without measurements."""

    def topology(self) -> Topology:
        """Return the structure as a topology.

        Raises:
            MachineError: It is damaged.
        """
        return topology_from_json(json.dumps(self.structure), f"the structure of {self.host}")


def record_host(*, every_gpu: bool = False) -> HostRecord | None:
    """Return this host as it is now; None where it cannot be probed.

    Args:
        every_gpu: Whether GPUs count that CUDA_VISIBLE_DEVICES hides from this process.
    """
    try:
        return host_record(probe_structure(every_gpu=every_gpu), read_gpu_states())
    except MachineError:
        return None


def record_node(gpu_models: Collection[str], gpus: Collection[int]) -> HostRecord | None:
    """Return this host as it is now; None where it cannot be a node of a machine.

    A rank of a job may see its own GPU alone: then all GPUs of the host count.

    Args:
        gpu_models: As for `is_of_machine`.
        gpus: Likewise.
    """
    for every_gpu in (False, True):
        record = record_host(every_gpu=every_gpu)
        if record is not None and is_of_machine(record, gpu_models, gpus):
            return record
    return None


def probe_structure(*, every_gpu: bool = False) -> Topology:
    """Return the topology of this host without measurements.

    Raises:
        MachineError: It cannot be probed.
    """
    options = HostProbeOptions(measure_p2p=False, check_matrix=False, every_gpu=every_gpu)
    return probe_host(options).topology


def host_record(topology: Topology, states: GpuStates) -> HostRecord:
    """Return the record of a host from its structure and the states of its GPUs."""
    structure: dict[str, Any] = json.loads(topology_to_json(topology))
    host = topology.hosts[0] if topology.hosts else gethostname()
    return HostRecord(host, states.driver, congestion_control(), states.settings, structure)


def is_of_machine(record: HostRecord, gpu_models: Collection[str], gpus: Collection[int]) -> bool:
    """Return whether a host can be a node of a machine.

    Args:
        record: The host.
        gpu_models: PCI `vendor:device` of the machine's GPUs.
        gpus: Numbers of GPUs that its nodes have.
    """
    return has_models(record, gpu_models) and len(record.topology().gpus) in gpus


def has_models(record: HostRecord, gpu_models: Collection[str]) -> bool:
    """Return whether a host has GPUs, and none but of these models."""
    own = {gpu.model for gpu in record.topology().gpus}
    return bool(own) and own <= set(gpu_models)


def host_record_text(record: HostRecord) -> str:
    """Return a record as JSON."""
    return _adapter().dump_json(record, indent=1).decode() + "\n"


def read_host_record(path: Path) -> HostRecord | None:
    """Read a record; None where it is missing or damaged."""
    try:
        return _adapter().validate_json(read_regular_file(path))
    except (OSError, ValidationError):
        return None


@cache
def _adapter() -> TypeAdapter[HostRecord]:
    return TypeAdapter(HostRecord)
