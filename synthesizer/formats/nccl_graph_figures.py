"""Bandwidths, path types and device numbers of an NCCL graph, from the topology and the sketch.

NCCL's cost model multiplies a graph's bandwidth by its channels, so the stated bandwidth is that of
one channel when all of them run: the narrowest edge or port of its path, divided by its uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from probes.topology.graph import DeviceKind, LinkKind, Topology
from probes.topology.paths import local_path
from sketches.sketch import Edge, Sketch
from tuccl.errors import FormatError

_FABRIC = frozenset({LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C})

Hop = tuple[int, int]
"""Source and destination rank."""


class PathType(StrEnum):
    """NCCL's path types that a topology can distinguish, nearest first."""

    LOC = "LOC"
    NVL = "NVL"
    PIX = "PIX"
    """Through one PCIe switch."""
    PXB = "PXB"
    """Through several PCIe switches."""
    PHB = "PHB"
    """Through a CPU."""
    SYS = "SYS"
    """Across sockets, or by an unknown path."""


_NEARNESS = tuple(PathType)


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """Bandwidths and path types of a graph's channels; GB/s per channel."""

    speed_intra_gb_per_s: float
    speed_inter_gb_per_s: float
    type_intra: PathType
    type_inter: PathType


@dataclass(frozen=True)
class GraphMachine:
    """The machine, and its sketch, that a schedule was made for."""

    topology: Topology
    sketch: Sketch

    @property
    def node_of_rank(self) -> tuple[int, ...]:
        """Node of each rank."""
        return self.sketch.node_of_rank

    @property
    def gpu_of_rank(self) -> tuple[int, ...]:
        """Index of each rank's GPU on its node."""
        return tuple(gpu.index for gpu in self.topology.gpus)

    def nic(self, rank: int) -> int:
        """Return the index on its node of the NIC that a rank uses.

        Raises:
            FormatError: The rank has no NIC.
        """
        return self.topology.device[self.nic_name(rank)].index

    def nic_name(self, rank: int) -> str:
        """Return the NIC of a rank's edges in the sketch; of several, the one bound to the rank.

        Raises:
            FormatError: The rank has no NIC.
        """
        used = {
            port.partition(":")[2]
            for edge in self.sketch.edges
            for port in edge.ports
            if (edge.src == rank and port.startswith("tx:"))
            or (edge.dst == rank and port.startswith("rx:"))
        }
        known = sorted(name for name in used if name in self.topology.device)
        bound = [binding.nic for binding in self.sketch.bindings if binding.rank == rank]
        for name in (*(nic for nic in bound if nic in known or not known), *known):
            return name
        raise FormatError(
            f"rank {rank} has no NIC in sketch '{self.sketch.name}' of '{self.topology.name}', so"
            " no NCCL graph can say how it reaches other nodes"
        )


def graph_figures(machine: GraphMachine, hops: Sequence[Hop], weight: float = 1.0) -> GraphFigures:
    """Return the figures of a graph whose channels use these hops, each with `weight` of the data.

    Raises:
        FormatError: A hop is not in the sketch, or a rank has no NIC.
    """
    load: dict[str | Hop, float] = defaultdict(float)
    for hop in hops:
        load[hop] += weight
        for port in _edge(machine, hop).ports:
            load[port] += weight
    node = machine.node_of_rank
    inside = sorted({hop for hop in hops if node[hop[0]] == node[hop[1]]})
    across = sorted({hop for hop in hops if node[hop[0]] != node[hop[1]]})
    speeds = [
        min((_speed(machine, hop, load) for hop in group), default=0.0)
        for group in (inside, across)
    ]
    type_intra = _worst(_gpu_type(machine, hop) for hop in inside)
    # NCCL's own dumps say PIX where there is no network.
    type_inter = PathType.PIX
    if across:
        type_inter = _worst(
            _nic_type(machine, rank) for rank in sorted({r for h in across for r in h})
        )
    return GraphFigures(
        speeds[0] if inside else speeds[1],
        speeds[1] if across else speeds[0],
        type_intra,
        type_inter,
    )


def _edge(machine: GraphMachine, hop: Hop) -> Edge:
    edge = machine.sketch.edge.get(hop)
    if edge is None:
        raise FormatError(
            f"sketch '{machine.sketch.name}' has no edge from rank {hop[0]} to rank {hop[1]}: the"
            " schedule was made for another machine"
        )
    return edge


def _speed(machine: GraphMachine, hop: Hop, load: dict[str | Hop, float]) -> float:
    edge = _edge(machine, hop)
    ports = machine.sketch.port
    return min(
        edge.bandwidth_gb_per_s / load[hop],
        *(ports[name].bandwidth_gb_per_s / load[name] for name in edge.ports),
        edge.bandwidth_gb_per_s,
    )


def _worst(types: Iterable[PathType]) -> PathType:
    return max(types, key=_NEARNESS.index, default=PathType.LOC)


def _gpu_type(machine: GraphMachine, hop: Hop) -> PathType:
    gpus = machine.topology.gpus
    return _path_type(machine.topology, gpus[hop[0]].name, gpus[hop[1]].name)


def _nic_type(machine: GraphMachine, rank: int) -> PathType:
    gpu = machine.topology.gpus[rank].name
    return _path_type(machine.topology, gpu, machine.nic_name(rank))


def _path_type(topology: Topology, src: str, dst: str) -> PathType:
    path = local_path(topology, src, dst)
    if path is None:
        return PathType.SYS
    if all(kind in _FABRIC for kind in path.kinds):
        return PathType.NVL
    between = [topology.device[name].kind for name in path.devices[1:-1]]
    cpus = between.count(DeviceKind.CPU)
    if cpus:
        return PathType.PHB if cpus == 1 else PathType.SYS
    return PathType.PXB if between.count(DeviceKind.PCIE_SWITCH) > 1 else PathType.PIX
