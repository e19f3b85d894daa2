"""Machines: probe them, read them from files of any form, write and compare them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from probes.comparison.changes import describe_changes, describe_figures
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tuccl.api.hosts.probe_command import (
    DEFAULT_HOST_TIMEOUT_S,
    DEFAULT_SECONDS_PER_PAIR,
    ProbeCommand,
)
from tuccl.api.hosts.probing import (
    Reach,
    check_options,
    cluster_options,
    is_sound,
    network_faults,
    with_hosts,
)
from tuccl.api.stages import OnStage, Tell, progress_of, unsaid
from tuccl.crew.cluster_probe import ClusterProbe, probe_cluster
from tuccl.crew.mpi import mpi_tasks
from tuccl.crew.places import Places
from tuccl.errors import ExitCode, UsageError
from tuccl.options.machine import load_machine
from tuccl.options.machine_argument import read_machine_argument
from tuccl.options.machine_options import MachineOptions
from tuccl.workspace.atomic_file import write_atomically

Machine = Topology | str | Path
"""A machine, or where it is read from: a file of any form, `shipped:NAME`, `FILE.json#name`."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of a probe."""

    topology: Topology
    missing: tuple[str, ...]
    """Hosts that did not answer, each with the reason."""
    odd_hosts: tuple[str, ...]
    """Hosts that differ from the others, a sentence each."""
    faults: Mapping[str, tuple[str, ...]]
    """Ports, connections and hosts with a network fault, by kind of fault, as `slow_links`."""
    seconds: Mapping[str, float]
    """Seconds that each stage took."""
    is_sound: bool
    """Whether the probe found no fault."""


def read_topology(
    source: str | Path,
    *,
    nodes: int = 1,
    network_gbps: float | None = None,
    network_latency_us: float = 2.0,
    network_layout: str = "rails",
) -> Topology:
    """Read a machine from a file.

    Args:
        source: TuCCL's JSON, NCCL's XML (`NCCL_TOPO_DUMP_FILE`), hwloc's XML, a tar of /sys, what
            lspci or `nvidia-smi topo -m` printed; or `shipped:NAME`, or `FILE.json#name`.
        nodes: Number of copies of the machine, joined by a network.
        network_gbps: Gbit/s of every network link; None: the NIC's own.
        network_latency_us: Latency from NIC to NIC.
        network_layout: `rails`: NIC i of every node on one switch; `fabric`: all on one.

    Returns:
        The machine; its `notes` say what the file leaves open.

    Raises:
        MachineError: The file cannot be read, or describes an impossible machine.
        UsageError: No such machine is shipped, or the network is impossible.
    """
    machine = read_machine_argument(str(source))
    if nodes == 1 and network_gbps is None:
        return machine
    options = MachineOptions(str(source), nodes, network_gbps, network_latency_us, network_layout)
    return load_machine(options, machine)


def machine_of(machine: Machine) -> Topology:
    """Return the machine, read from its file where it is given by name."""
    return machine if isinstance(machine, Topology) else read_topology(machine)


def write_topology(topology: Topology, path: str | Path) -> Path:
    """Write a machine, as NCCL's XML where the file's name ends in .xml, else as TuCCL's JSON.

    Raises:
        MachineError: NCCL's form cannot express the machine.
        WorkspaceError: The file cannot be written.
    """
    path = Path(path)
    to_text = topology_to_nccl_xml if path.suffix.lower() == ".xml" else topology_to_json
    write_atomically(path, to_text(topology))
    return path


def compare(old: Machine, new: Machine, *, figures: bool = False) -> tuple[str, ...]:
    """Return the differences between two descriptions of a machine, a sentence each.

    Args:
        old: The machine before.
        new: The machine now.
        figures: Whether to list figures that differ within their bandwidth class, too.

    Returns:
        No sentences where both have the same fingerprint and `figures` is false.

    Raises:
        MachineError: A file cannot be read.
    """
    before, now = machine_of(old), machine_of(new)
    changes = describe_changes(before, now)
    return (*changes, *describe_figures(before, now)) if figures else changes


def probe(
    *,
    p2p: bool = True,
    network: bool = True,
    hosts: str | None = None,
    launcher: str = "",
    interfaces: Sequence[str] = (),
    allow_missing: bool = False,
    host_timeout_s: float = DEFAULT_HOST_TIMEOUT_S,
    seconds_per_pair: int = DEFAULT_SECONDS_PER_PAIR,
    root: str | Path | None = None,
    on_stage: OnStage = None,
    tell: Tell = None,
) -> Probe:
    """Describe this host or cluster: detect its devices and measure its links.

    Args:
        p2p: Whether to measure between GPUs.
        network: Whether to measure between hosts.
        hosts: Hosts to probe, as `node[01-16],login`; None: this one.
        launcher: Command that starts another on a host; ssh if empty.
        interfaces: Patterns of interfaces that count as NICs.
        allow_missing: Go on without hosts that do not answer.
        host_timeout_s: Seconds that a host may take to answer.
        seconds_per_pair: Seconds of each bandwidth measurement between hosts.
        root: Read the system below this directory, and measure nothing.
        on_stage: Called with the progress.
        tell: Called with each note, a line.

    Raises:
        MachineError: Hosts did not answer, or describe an impossible machine.
        UsageError: The arguments contradict each other.
    """
    refuse_mpi("probe")
    command = ProbeCommand(
        hosts=hosts,
        launcher=launcher,
        interfaces=tuple(interfaces),
        p2p=p2p,
        network=network,
        allow_missing=allow_missing,
        host_timeout_s=host_timeout_s,
        seconds_per_pair=seconds_per_pair,
        root=None if root is None else Path(root),
    )
    check_options(command, 1)
    options = cluster_options(command, tell or unsaid)
    found: list[ClusterProbe] = []

    def lead(places: Places | None) -> int:
        found.append(probe_cluster(places, options, progress_of(on_stage)))
        return ExitCode.OK

    with_hosts(Reach(command.hosts, command.launcher, command.remote_python), lead)
    result = found[0]
    return Probe(
        topology=result.topology,
        missing=tuple(f"{absent.name}: {absent.reason}" for absent in result.missing),
        odd_hosts=tuple(result.odd_hosts),
        faults={name: tuple(named) for name, named in network_faults(result).items()},
        seconds=dict(result.seconds),
        is_sound=is_sound(result),
    )


def refuse_mpi(function: str) -> None:
    """Require a single process.

    Raises:
        UsageError: MPI started several, which would all do the same work.
    """
    tasks = mpi_tasks(os.environ)
    if tasks > 1:
        raise UsageError(
            f"tuccl.{function} within {tasks} tasks of MPI: it is for one process; start the "
            "command `tuccl` with mpirun instead"
        )
