"""`Table`: which configuration wins for which operation, size and communicator shape.

A key holds the operation, a byte range, the topology fingerprint and the communicator shape. Sizes
follow nccl-tests: all_reduce, broadcast, reduce count the per-rank buffer; all_gather,
reduce_scatter and alltoall the larger of the two buffers, which is also what NCCL hands to a tuner.

An entry exists only where something is faster than the stock default beyond the noise; everywhere
else NCCL is left alone.

Units: bytes are integers, times microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lookup_tables.confirmation import Confirmation
from lookup_tables.provenance import Provenance


class Operation(StrEnum):
    """Operations a table can hold; names as in nccl-tests."""

    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALLTOALL = "alltoall"


class NcclAlgorithm(StrEnum):
    """NCCL's built-in algorithms, in the order of its cost table (indices 0 to 6)."""

    TREE = "tree"
    RING = "ring"
    COLLNET_DIRECT = "collnet_direct"
    COLLNET_CHAIN = "collnet_chain"
    NVLS = "nvls"
    NVLS_TREE = "nvls_tree"
    PAT = "pat"


class NcclProtocol(StrEnum):
    """NCCL's protocols, in the order of its cost table (indices 0 to 2)."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Shape of a communicator."""

    ranks: int
    nodes: int
    ranks_per_node: int
    """Equal on every node; 0 when nodes differ."""


@dataclass(frozen=True, slots=True)
class Key:
    """When an entry applies."""

    operation: Operation
    min_bytes: int
    """Smallest size it applies to, inclusive."""
    max_bytes: int
    """Largest size it applies to, inclusive."""
    shape: Shape
    fingerprint: str
    """Of the topology it was tuned on."""


@dataclass(frozen=True, slots=True)
class BuiltinConfig:
    """A setting of stock NCCL that the tuner plugin can choose per call."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    nchannels: int = 0
    """0: leave NCCL's own count."""


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """A schedule of the bundle with its executor parameters, all per call."""

    schedule: str
    """Content hash of the schedule."""
    protocol: NcclProtocol
    nchannels: int
    nthreads: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A winner for one key."""

    key: Key
    tuned_bytes: int
    """The size that was measured."""
    builtin: BuiltinConfig | None
    """Best built-in configuration if it beats the default; what jobs without the executor use."""
    schedule: ScheduleConfig | None
    """The schedule that won, if one did."""
    time_us: float
    """Of the winner, by the estimator of `confirmation`."""
    builtin_time_us: float | None
    """Of `builtin`, likewise; None when there is none."""
    default_time_us: float
    """Of stock NCCL: what the winner was held against where that was stock NCCL, else the
    interquartile mean of its samples, before and after."""
    samples: int
    """Of the winner."""
    spread: float
    """Relative half-width between the quartiles of the winner's samples; over starts the standard
    deviation of the logarithms."""
    tuned_at: str
    """ISO 8601, UTC."""
    provenance: Provenance | None = None
    """What took the times; None: a bundle does not say, nor do all tables of format 2 or older."""
    confirmation: Confirmation | None = None
    """How the winner is known to be faster; None: a bundle does not say, nor do tables of format 2
    or older."""


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule that entries refer to, in one form for each that reads it."""

    content_hash: str
    name: str
    msccl_xml: str
    """For people and other runtimes, whatever the ranks; TuCCL does not read it again."""
    program: bytes = b""
    """For the executor; empty where none can run the schedule (for more ranks than it serves)."""


@dataclass(frozen=True)
class Table:
    """All entries for one machine, with the process profile they were measured under."""

    topology_name: str
    fingerprint: str
    gpu_models: tuple[str, ...]
    """Distinct PCI `vendor:device` of the GPUs, sorted; empty when the topology does not say."""
    entries: tuple[Entry, ...]
    """Sorted by shape, operation and min_bytes; ranges of one (shape, operation) do not overlap."""
    profile: Mapping[str, str] = field(default_factory=dict)
    """Environment that every process of the job needs (NCCL_NTHREADS, ...): one per table."""
    schedules: tuple[StoredSchedule, ...] = ()
    """Schedules that entries refer to, sorted by content hash."""
