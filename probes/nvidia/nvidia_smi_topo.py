"""A topology from the table of `nvidia-smi topo -m`, the last resort: `topology_of_matrix`.

The table has the proximity of devices and the NVLink counts of GPU pairs, but neither speeds nor
models, so every figure of the topology is assumed and marked so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from probes.nccl_xml.assembly import assemble
from probes.nccl_xml.records import CpuRecord, GpuLinkRecord, GpuRecord, NetRecord, PciRecord
from probes.nvidia.topo_matrix import Connection, TopoMatrix
from probes.topology.graph import Topology
from probes.topology.hosts import folded
from tuccl.errors import MachineError

MAX_NVLINKS = 18
"""NVLinks of one GPU: Hopper and Blackwell (NVIDIA data sheets); no GPU has more."""
_MAX_DIRECT = 4
"""GPUs connected all to all without a switch: HGX boards of four, bridges of two."""

_SWITCHED = (Connection.PIX, Connection.PXB)
_ONE_CPU = (*_SWITCHED, Connection.PHB, Connection.NODE)
_SWITCH_BUS_ID = "nvswitch"


def topology_of_matrix(matrix: TopoMatrix, name: str) -> Topology:
    """Return a topology from the table alone, with every figure assumed.

    PIX and PXB become PCIe switches, PHB and NODE one CPU (NUMA node), SYS two. Equal NVLink counts
    between all GPUs of a group become an NVSwitch if the group has more than 4 GPUs, or more links
    per GPU than 18, or 18 links per pair; else the links are direct.

    Raises:
        MachineError: the NVLinks are those of no known machine.
        InvalidTopologyError: there are more CPUs than a machine has.
    """
    notes = list(matrix.notes)
    links = _gpu_links(matrix, notes)
    leaves = {
        gpu: _endpoint(gpu, "030200", "10de", GpuRecord(number, None, 0, tuple(links[gpu])))
        for number, gpu in enumerate(matrix.gpus)
    }
    for number, nic in enumerate(matrix.nics):
        net = NetRecord(matrix.nic_name(nic), number, None)
        leaves[nic] = replace(_endpoint(nic, "020000", ""), nets=(net,))
    cpus = [
        CpuRecord("", "", "", 0, 0, _branches(matrix, group, leaves), ())
        for group in _numa_groups(matrix, notes)
    ]
    notes.append(
        "Read from `nvidia-smi topo -m` alone, which shows neither parts nor speeds: all "
        "bandwidths are assumed, 25 GB/s for an NVLink; a probe on the host says more."
    )
    topology = assemble(cpus, name, matrix.source, notes)
    return replace(
        topology, devices=tuple(replace(device, bus_id="") for device in topology.devices)
    )


def _endpoint(name: str, pci_class: str, vendor: str, gpu: GpuRecord | None = None) -> PciRecord:
    return PciRecord(name.lower(), pci_class, vendor, "", "", 0, (), gpu, (), (), ())


def _groups(members: Sequence[str], near: Callable[[str, str], bool]) -> list[list[str]]:
    """Group members that are connected over any number of near pairs, in order."""
    groups: list[list[str]] = []
    for member in members:
        touched = [group for group in groups if any(near(member, peer) for peer in group)]
        merged = [*itertools.chain.from_iterable(touched), member]
        groups = [group for group in groups if group not in touched]
        groups.append(merged)
    order = {member: index for index, member in enumerate(members)}
    ordered = [sorted(group, key=order.__getitem__) for group in groups]
    return sorted(ordered, key=lambda group: order[group[0]])


def _numa_groups(matrix: TopoMatrix, notes: list[str]) -> list[list[str]]:
    """Group devices by CPU, GPUs with NVLinks by affinity; those without either join the first."""

    def share_cpu(a: str, b: str) -> bool:
        connection = matrix.cells[a, b].connection
        if connection is Connection.NVLINK:
            return a in matrix.affinity and matrix.affinity[a] == matrix.affinity.get(b)
        return connection in _ONE_CPU

    groups = _groups((*matrix.gpus, *matrix.nics), share_cpu)
    contradictions = sum(
        matrix.cells[a, b].connection is Connection.SYS
        for group in groups
        for a, b in itertools.combinations(group, 2)
    )
    if contradictions:
        notes.append(
            f"Pairs that are SYS, though others tie them to one CPU ({contradictions}): one CPU."
        )
    unplaced = [group for group in groups if not _is_placed(matrix, group[0])]
    if len(unplaced) > 1 or (unplaced and len(groups) > len(unplaced)):
        kept = [group for group in groups if group not in unplaced]
        first = [*(kept.pop(0) if kept else []), *itertools.chain.from_iterable(unplaced)]
        names = ", ".join(group[0] for group in unplaced[:4])
        notes.append(f"Nothing shows which CPU {names} sit at: taken as at the first.")
        groups = [first, *kept]
    return groups


def _is_placed(matrix: TopoMatrix, device: str) -> bool:
    """Whether the affinity or a connection other than NVLink is known."""
    cells = (cell for (row, _), cell in matrix.cells.items() if row == device)
    return device in matrix.affinity or any(
        cell.connection is not Connection.NVLINK for cell in cells
    )


def _branches(
    matrix: TopoMatrix, group: Sequence[str], leaves: dict[str, PciRecord]
) -> tuple[PciRecord, ...]:
    """Return a switch for each PXB group, with a switch below for each PIX group in it."""

    def grouped(members: Sequence[str], kinds: Iterable[Connection]) -> list[list[str]]:
        wanted = tuple(kinds)
        return _groups(members, lambda a, b: matrix.cells[a, b].connection in wanted)

    def switch(members: Sequence[str], level: str, below: Sequence[PciRecord]) -> PciRecord:
        name = f"{level} of {members[0]}"
        return replace(_endpoint(name, "060400", ""), children=tuple(below))

    branches = []
    for members in grouped(group, _SWITCHED):
        below = [
            leaves[near[0]]
            if len(near) == 1
            else switch(near, "switch", [leaves[member] for member in near])
            for near in grouped(members, (Connection.PIX,))
        ]
        branches.append(below[0] if len(below) == 1 else switch(members, "switches", below))
    return tuple(branches)


def _gpu_links(matrix: TopoMatrix, notes: list[str]) -> dict[str, list[GpuLinkRecord]]:
    """Return the NVLinks of every GPU, to the other GPUs or to the only NVSwitch."""

    def count(a: str, b: str) -> int:
        return matrix.cells[a, b].nvlinks

    links: dict[str, list[GpuLinkRecord]] = {gpu: [] for gpu in matrix.gpus}
    switched = []
    for group in _groups(matrix.gpus, lambda a, b: count(a, b) > 0):
        counts = {count(a, b) for a, b in itertools.permutations(group, 2)}
        max_links = max((sum(count(a, b) for b in group if b != a) for a in group), default=0)
        if len(counts) == 1 and (
            len(group) > _MAX_DIRECT or max_links > MAX_NVLINKS or counts == {MAX_NVLINKS}
        ):
            switched.append(group)
            for gpu in group:
                links[gpu].append(GpuLinkRecord("nvlink", _SWITCH_BUS_ID, "068000", max(counts), 0))
            continue
        if max_links > MAX_NVLINKS:
            raise MachineError(
                f"{matrix.source}: {max_links} NVLinks at one GPU of {group[0]} to {group[-1]}, "
                f"and not the same to all, but a GPU has {MAX_NVLINKS} at most; give a topology "
                "that NCCL dumped (NCCL_TOPO_DUMP_FILE)"
            )
        for a, b in itertools.permutations(group, 2):
            if count(a, b):
                links[a].append(GpuLinkRecord("nvlink", b.lower(), "030200", count(a, b), 0))
    if len(switched) > 1:
        raise MachineError(
            f"{matrix.source}: {len(switched)} groups of GPUs with NVSwitches of their own, where "
            "one host has one; give a topology that NCCL dumped (NCCL_TOPO_DUMP_FILE)"
        )
    notes.extend(
        f"Equal NVLinks between all of {folded(group)}: taken as behind an NVSwitch."
        for group in switched
    )
    if any(links[gpu] for gpu in matrix.gpus if not any(gpu in group for group in switched)):
        notes.append("NVLinks between GPUs are taken as direct.")
    return links
