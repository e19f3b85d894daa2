"""The machine that `init` tunes: a description, replicated to nodes and validated.

Nothing is written here, so a file that cannot serve leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probes.errors import UnknownNicSpeedError
from probes.topology.graph import Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from probes.topology.validation import validate
from tuccl.errors import UsageError
from tuccl.inputs.machine_argument import read_machine_argument

MAX_NODES = 1024


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """How a machine is described on the command line."""

    topology: str | None
    """As `read_machine_argument` takes it: a file, `shipped:NAME` or `FILE.json#name`. None: the
    machine is at hand."""
    nodes: int = 1
    network_gbit_per_s: float | None = None
    """Speed of every NIC's network link; None: the NIC's own."""
    network_latency_us: float = 2.0
    """From NIC to NIC through the fabric."""
    network_layout: str = NetworkLayout.RAILS.value


def load_machine(options: MachineOptions, machine: Topology | None = None) -> Topology:
    """The machine, valid and ready to be tuned.

    Args:
        options: how it is described, and what joins several of it.
        machine: the machine itself, where the options name none.

    Raises:
        UsageError: for impossible options.
        ProbeError: for a file that cannot serve.
    """
    if not 1 <= options.nodes <= MAX_NODES:
        raise UsageError(f"--nodes {options.nodes} is out of range: use 1 to {MAX_NODES}")
    gbit = options.network_gbit_per_s
    if gbit is not None and not 0.001 <= gbit <= 1e6:
        raise UsageError(f"--network-gbps {gbit} is not a speed: use for example 200")
    if gbit is not None and options.nodes == 1:
        raise UsageError("--network-gbps is the speed of what joins --nodes 2 or more")
    if not 0 <= options.network_latency_us <= 1e6:
        raise UsageError(
            f"--network-latency-us {options.network_latency_us} is not a latency: use 0 to 1000000"
        )
    if machine is None:
        machine = _read(options.topology or "")
    network = Network(
        bandwidth_gb_per_s=None if gbit is None else gbit / 8.0,
        latency_us=options.network_latency_us,
        layout=_layout(options.network_layout),
    )
    try:
        topology = replicate(machine, options.nodes, network)
    except UnknownNicSpeedError as error:
        raise UnknownNicSpeedError(f"{error} in Gb/s per NIC, as --network-gbps 200") from error
    validate(topology)
    return topology


def _read(text: str) -> Topology:
    path = Path(text)
    if path.exists() and not path.is_dir() and not path.is_file():
        raise UsageError(f"{path} is no regular file; write the topology to a file first")
    return read_machine_argument(text)


def _layout(name: str) -> NetworkLayout:
    try:
        return NetworkLayout(name)
    except ValueError:
        known = " or ".join(layout.value for layout in NetworkLayout)
        raise UsageError(f"--network-layout {name!r} is unknown: use {known}") from None
