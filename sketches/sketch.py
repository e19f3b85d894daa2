"""`Sketch`: what the synthesizer may use of a machine.

A sketch names ranks, not devices. An edge is a permitted GPU-to-GPU transfer with its alpha and
beta; a port is a resource that several edges share and that serves one byte at a time (a GPU's
links into an NVSwitch, a NIC's transmit side, a PCIe uplink). A NIC shared by four connections is
one port on four edges: they share its time as they use it, unlike the fixed quarters of TACCL
(TuCCL section III-B).

Units: alpha in microseconds, bandwidth in GB/s = 1e9 bytes/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import permutations
from typing import Annotated

from annotated_types import Ge, Gt

from sketches.chunking import Chunking, chunking_for
from sketches.guidance import SizeRange

Rank = Annotated[int, Ge(0)]
Rate = Annotated[float, Gt(0)]


class PruningStage(StrEnum):
    """The stage of TuCCL's pruning that dropped an edge (section III-B)."""

    BINDING = "gpu_nic_binding"
    GROUPING = "bandwidth_aware_grouping"
    CONGESTION = "congestion_score"
    TRANSFORMATION = "topology_transformation"
    INTRA_NODE = "intra_node"


class EdgeKind(StrEnum):
    """The kind of an edge's slowest link."""

    NVLINK = "nvlink"
    XGMI = "xgmi"
    C2C = "c2c"
    PCIE = "pcie"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Port:
    """A resource that serves one transfer at a time, at its bandwidth."""

    name: str
    bandwidth_gb_per_s: Rate


@dataclass(frozen=True, slots=True)
class Edge:
    """A permitted transfer from one rank to another."""

    src: Rank
    dst: Rank
    kind: EdgeKind
    alpha_us: Annotated[float, Ge(0)]
    bandwidth_gb_per_s: Rate
    """Bandwidth of the narrowest link on its route."""
    ports: tuple[str, ...] = ()
    """Names of the shared ports on its route, in travel order."""


@dataclass(frozen=True, slots=True)
class DroppedEdge:
    """A possible GPU-to-GPU or GPU-to-NIC connection that the sketch leaves out."""

    src: str
    dst: str
    stage: PruningStage
    reason: str


@dataclass(frozen=True, slots=True)
class Binding:
    """The NIC that a rank uses, and the reason."""

    rank: Rank
    nic: str
    reason: str


@dataclass(frozen=True)
class Sketch:
    """Edges, ports, symmetry and provenance for one topology."""

    name: str
    why: str
    """The candidate's purpose, in one sentence."""
    node_of_rank: tuple[int, ...]
    edges: tuple[Edge, ...]
    """Sorted by (src, dst); at most one edge per ordered pair."""
    ports: tuple[Port, ...]
    symmetries: tuple[tuple[int, ...], ...] = ()
    """Rank permutations that map edges onto edges of equal alpha, beta and port structure."""
    chunks_per_rank: int = 1
    chunking: tuple[Chunking, ...] = ()
    """Preferred chunks, by size; empty: any number."""
    sizes: tuple[SizeRange, ...] = ()
    """Sizes at which it is worth trying; an operation without a range: all sizes."""
    bindings: tuple[Binding, ...] = ()
    dropped: tuple[DroppedEdge, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.node_of_rank)

    @cached_property
    def edge(self) -> dict[tuple[int, int], Edge]:
        """Edges by (src, dst)."""
        return {(edge.src, edge.dst): edge for edge in self.edges}

    def are_linked(self, ranks: Sequence[int]) -> bool:
        """Whether each of these ranks has an edge to each other one."""
        return all(pair in self.edge for pair in permutations(ranks, 2))

    @cached_property
    def port(self) -> dict[str, Port]:
        """Ports by name."""
        return {port.name: port for port in self.ports}

    def chunking_for(self, size_bytes: int) -> Chunking | None:
        """Return the preferred chunks at a size; None: any number."""
        return chunking_for(self.chunking, size_bytes)

    def sizes_of(self, operation: str) -> SizeRange | None:
        """Return the sizes of an operation at which it is worth trying; None: all."""
        return next((sizes for sizes in self.sizes if sizes.operation == operation), None)
