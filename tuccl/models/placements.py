"""Classes of a shape's communicators by where their ranks sit on a machine.

A job divides the GPUs of a host along the dimensions of its parallelism: pairs of neighbours, pairs
two apart, pairs across the middle. Communicators of equal figures form a class. Where all GPUs of a
host reach each other and the network alike, as behind NVSwitches with a NIC for each, a shape has
one class, and nothing is to be told apart.

NCCL knows the machine, but not which siblings are in use: classes that differ by what siblings
share alone (two rails on one NIC) look alike to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from lookup_tables.table import Shape
from probes.topology.graph import Device, DeviceKind, Topology
from probes.topology.hosts import hosts_alike
from probes.topology.paths import Proximity, local_path, pcie_distance
from tuccl.models.figures import Fabric, MachineFigures, communicator_shape, machine_figures
from tuccl.models.siblings import divided
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.shapes import strides

_ALIKE = 1.1
"""Ratio of two bandwidths up to which they count as equal: measured ones of equal links differ."""


@dataclass(frozen=True, slots=True)
class PlacementClass:
    """Communicators of a shape that differ in nothing that their times depend on."""

    placement: Placement
    """Those of the first division that has some: all siblings of it are in use when they are
    timed."""
    example: tuple[str, ...]
    """GPUs of the first one."""
    figures: MachineFigures
    """The machine that one of them sees while its siblings are in use."""
    alone: MachineFigures
    """The same without the siblings, as in NCCL's own estimates."""
    machine: Topology
    """The machine behind `figures`."""
    proximity: Proximity
    """The farthest path among its GPUs, and from them to their NICs."""

    def is_like(self, other: PlacementClass) -> bool:
        """Whether communicators of both are alike."""
        return (
            self.proximity is other.proximity
            and _are_alike(self.figures, other.figures)
            and _are_alike(self.alone, other.alone)
        )

    @property
    def text(self) -> str:
        """For people: `communicators such as that of n0/gpu0 and n0/gpu3`."""
        *gpus, last = self.example
        return f"communicators such as that of {', '.join(gpus)} and {last}"


def placements(topology: Topology, shape: Shape) -> tuple[PlacementClass, ...]:
    """Return the classes of a shape's communicators; none where they would leave GPUs over.

    They are in the order in which the divisions have them: those of neighbours first.
    Communicators between whose ranks the topology has no path are in none.
    """
    classes: list[list[PlacementClass]] = []
    for sibling in _siblings(topology, shape):
        for members in classes:
            if members[0].is_like(sibling):
                members.append(sibling)
                break
        else:
            classes.append([sibling])
    return tuple(map(_class_of, classes))


def _siblings(topology: Topology, shape: Shape) -> Iterator[PlacementClass]:
    whole = communicator_shape(topology)
    nodes = sorted({gpu.node for gpu in topology.gpus})
    for stride in strides(shape, whole):
        if shape.nodes > 1 or shape == whole:
            yield from _of_division(topology, shape, stride, 0)
            continue
        for group in hosts_alike(topology):
            if communicator_shape(group.example).ranks % shape.ranks == 0:
                before = nodes.index(group.nodes[0]) * (whole.ranks_per_node // shape.ranks)
                yield from _of_division(group.example, shape, stride, before)


def _of_division(
    topology: Topology, shape: Shape, stride: int, before: int
) -> Iterator[PlacementClass]:
    """Yield a class of each sibling of one division whose GPUs have paths to one another.

    `before` communicators have lower numbers.
    """
    in_use = divided(topology, shape, stride)
    alone = divided(topology, shape, stride, alone=True)
    for (communicator, machine), (_, without_siblings) in zip(in_use, alone, strict=True):
        if not _is_linked(machine):
            continue
        figures = machine_figures(machine)
        yield PlacementClass(
            Placement(stride, (before + communicator.number,)),
            communicator.gpus,
            figures,
            machine_figures(without_siblings),
            machine,
            _farthest(machine, figures.fabric),
        )


def _class_of(members: Sequence[PlacementClass]) -> PlacementClass:
    """Return the class of communicators that are alike, each given as a class of its own."""
    first = members[0]
    stride = first.placement.stride
    timed = [each for each in members if each.placement.stride == stride]
    slowest = min(timed, key=lambda each: each.figures.speed)
    numbers = sorted(number for each in timed for number in each.placement.siblings)
    placement = Placement(stride, tuple(numbers))
    return replace(slowest, placement=placement, example=first.example)


def _are_alike(first: MachineFigures, second: MachineFigures) -> bool:
    kinds = [
        (each.fabric, each.generation, each.nics_per_node, each.sockets) for each in (first, second)
    ]
    return (
        kinds[0] == kinds[1]
        and _is_close(first.intra_gb_per_s, second.intra_gb_per_s)
        and _is_close(first.nic_gb_per_s, second.nic_gb_per_s)
    )


def _is_close(first: float, second: float) -> bool:
    return first == second or max(first, second) <= _ALIKE * min(first, second)


def _is_linked(machine: Topology) -> bool:
    """Whether GPUs of a host reach one another, relayed by others too, and each a NIC of theirs."""
    first = {gpu.node: gpu.name for gpu in reversed(machine.gpus)}
    frontier, reached = list(first.values()), set[str]()
    while frontier:
        name = frontier.pop()
        if name in reached:
            continue
        reached.add(name)
        ends = (machine.device[link.dst] for link in machine.links_from[name])
        frontier += [
            end.name
            for end in ends
            if end.kind is not DeviceKind.NIC and end.node == machine.device[name].node
        ]
    return all(gpu.name in reached and _reaches_a_nic(machine, gpu) for gpu in machine.gpus)


def _reaches_a_nic(machine: Topology, gpu: Device) -> bool:
    """Whether a GPU has a path to a NIC; inside one host none is needed."""
    return machine.node_count == 1 or any(
        local_path(machine, gpu.name, nic.name) for nic in machine.nics if nic.node == gpu.node
    )


def _farthest(machine: Topology, fabric: Fabric) -> Proximity:
    """Return the farthest path between GPUs of a host off NVLink, and to a GPU's nearest NIC."""
    found = [Proximity.SWITCH]
    if fabric is Fabric.PCI:
        found += [
            pcie_distance(machine, a.name, b.name)
            for a, b in permutations(machine.gpus, 2)
            if a.node == b.node
        ]
    for gpu in machine.gpus:
        nics = [nic.name for nic in machine.nics if nic.node == gpu.node]
        if nics:
            found.append(min(pcie_distance(machine, gpu.name, nic) for nic in nics))
    return max(found)
