"""Machines: probe them, read them from files of any form, write and compare them."""

from __future__ import annotations

import os
from pathlib import Path

from probes.comparison.changes import describe_changes, describe_figures
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tuccl.api.hosts.probe_options import ProbeOptions
from tuccl.api.hosts.probing import (
    check_options,
    cluster_options,
    with_hosts,
)
from tuccl.api.stages import OnStage, Tell, progress_of, unsaid
from tuccl.crew.cluster_probe import ProbeResult, probe_cluster
from tuccl.crew.places import Places
from tuccl.crew.started_rank import ranks_of_launcher
from tuccl.errors import ExitCode, UsageError
from tuccl.options.machine import load_machine
from tuccl.options.machine_argument import read_machine_argument
from tuccl.options.machine_options import MachineOptions
from tuccl.workspace.atomic_file import write_atomically

Machine = Topology | str | Path
"""A machine, or where it is read from: a file of any form, `shipped:NAME`, `FILE.json#name`."""


def read_topology(
    source: str | Path,
    *,
    nodes: int = 1,
    network_gbps: float | None = None,
    network_latency_us: float = 2.0,
    network_layout: str = "rails",
    racks: str | None = None,
    oversubscription: float = 1.0,
) -> Topology:
    """Read a machine from a file.

    Args:
        source: TuCCL's JSON, NCCL's XML (`NCCL_TOPO_DUMP_FILE`), hwloc's XML, a tar of /sys, what
            lspci or `nvidia-smi topo -m` printed; or `shipped:NAME`, or `FILE.json#name`.
        nodes: Number of copies of the machine, joined by a network.
        network_gbps: Gbit/s of every network link; None: the NIC's own.
        network_latency_us: Latency from NIC to NIC.
        network_layout: `rails`: NIC i of every node on one switch; `fabric`: all on one.
        racks: Number of nodes in each rack, as `4,4`; None: one rack.
        oversubscription: Bandwidth of a rack's NICs over that of its link to the spine.

    Returns:
        The machine; its `notes` say what the file leaves open.

    Raises:
        MachineError: The file cannot be read, or describes an impossible machine.
        UsageError: No such machine is shipped, or the network is impossible.
    """
    machine = read_machine_argument(str(source))
    if nodes == 1 and network_gbps is None and racks is None:
        return machine
    options = MachineOptions(
        str(source),
        nodes,
        network_gbps,
        network_latency_us,
        network_layout,
        racks,
        oversubscription,
    )
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
    options: ProbeOptions = ProbeOptions(),  # noqa: B008 - frozen
    *,
    on_stage: OnStage = None,
    tell: Tell = None,
) -> ProbeResult:
    """Describe this host or cluster: detect its devices and measure its links.

    Args:
        options: What is probed and how, as the options of `tuccl probe` say it.
        on_stage: Called with the progress.
        tell: Called with each note, a line.

    Raises:
        MachineError: Hosts did not answer, or describe an impossible machine.
        UsageError: The options contradict each other.
    """
    refuse_ranks("probe", ranks_of_launcher(os.environ))
    check_options(options, 1)
    how = cluster_options(options, tell or unsaid)
    found: list[ProbeResult] = []

    def lead(places: Places | None) -> int:
        found.append(probe_cluster(places, how, progress_of(on_stage)))
        return ExitCode.OK

    with_hosts(options, lead)
    return found[0]


def refuse_ranks(function: str, ranks: int) -> None:
    """Require a single process.

    Raises:
        UsageError: A launcher started several, which would all do the same work.
    """
    if ranks > 1:
        raise UsageError(
            f"tuccl.{function} within {ranks} tasks of a launcher: it is for one process; start "
            "the command `tuccl` with that launcher instead"
        )
