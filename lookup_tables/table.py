"""`Table`: the winning configuration by operation, size and communicator shape.

A key holds the operation, a byte range, the topology fingerprint and the communicator shape. Sizes
follow nccl-tests: all_reduce, broadcast, reduce count the per-rank buffer; all_gather,
reduce_scatter and alltoall the larger of the two buffers, which is also what NCCL hands to a tuner.

An entry exists only where a configuration is faster than stock NCCL beyond the noise; for all other
calls NCCL decides. In a table whose sums do not move calls that reduce have an entry at every size.

Units: bytes are integers, times microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Confirmation, JobGain
from lookup_tables.provenance import Provenance


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


MAX_RANKS = 2**32 - 1
"""Most ranks of a communicator; a bundle has 32 bits for them."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Shape of a communicator."""

    ranks: int
    nodes: int
    ranks_per_node: int
    """Ranks on each node; 0 when nodes differ."""

    @property
    def fault(self) -> str:
        """Say why no communicator has this shape; empty if one can have it."""
        figures = (self.ranks, self.nodes, self.ranks_per_node)
        if not all(type(figure) is int for figure in figures):
            return f"ranks, nodes and ranks per node {figures} are not all whole numbers"
        if not 1 <= self.nodes <= self.ranks <= MAX_RANKS:
            return "a shape needs 1 <= nodes <= ranks"
        if self.ranks_per_node not in {0, self.ranks / self.nodes}:
            return (
                f"{self.ranks_per_node} ranks per node contradict the shape; 0 says that nodes "
                "differ"
            )
        return ""


@dataclass(frozen=True, slots=True)
class Key:
    """The calls that an entry applies to."""

    operation: Collective
    min_bytes: int
    """Smallest size it applies to, inclusive."""
    max_bytes: int
    """Largest size it applies to, inclusive."""
    shape: Shape
    fingerprint: str
    """Fingerprint of the topology that was tuned."""


@dataclass(frozen=True, slots=True)
class BuiltinConfig:
    """A setting of stock NCCL that the tuner plugin can choose per call."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    nchannels: int = 0
    """Number of channels; 0: NCCL's own count."""
    chunk_bytes: int = 0
    """Size of the chunks into which NCCL cuts each channel's part of a call, for NCCLs that ask
    their tuner about it (2.30); others are left to themselves there. 0: NCCL's own."""


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """A schedule of the bundle with its executor parameters, all per call."""

    schedule: str
    """Content hash of the schedule."""
    protocol: NcclProtocol
    nchannels: int
    nthreads: int
    buffer_bytes: int
    in_windows: bool = False
    """Whether it serves calls on registered windows, too, because it was not slower there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The winner for one key."""

    key: Key
    tuned_bytes: int
    """The size that was measured."""
    builtin: BuiltinConfig | None
    """Best built-in configuration if it beats the default; what jobs without the executor use."""
    schedule: ScheduleConfig | None
    """The winning schedule, if any."""
    time_us: float
    """Time of the winner, by the estimator of `confirmation`."""
    builtin_time_us: float | None
    """Time of `builtin`, likewise; None without one."""
    default_time_us: float
    """Time of stock NCCL: by the same estimator if it was the reference, else the interquartile
    mean of its samples, before and after."""
    samples: int
    """Number of the winner's samples."""
    spread: float
    """Relative half-width between the quartiles of the winner's samples; over starts the standard
    deviation of the logarithms."""
    tuned_at: str
    """ISO 8601, UTC."""
    provenance: Provenance | None = None
    """Provenance of the times; None in bundles."""
    confirmation: Confirmation | None = None
    """Evidence for the winner; None in bundles."""
    in_job: JobGain | None = None
    """What jobs gained at the measured size; None if no jobs were run, and always in bundles."""


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule that entries refer to, in one form for each reader."""

    content_hash: str
    name: str
    msccl_xml: str
    """XML for users and other runtimes, which TuCCL does not read; empty for a schedule across
    nodes, whose steps grow with the square of the ranks."""
    program: bytes = b""
    """Program for the executor; empty for a schedule of more ranks than the executor serves."""


@dataclass(frozen=True, slots=True)
class EstimateLine:
    """NCCL's own estimate for ring with Simple, as a line over the size of a call."""

    latency_us: float
    """Times the operations that a call pipelines."""
    us_per_byte: float

    def at(self, size_bytes: int) -> float:
        """Return the estimate for a call that pipelines nothing, in us."""
        return self.latency_us + self.us_per_byte * size_bytes


@dataclass(frozen=True, slots=True)
class TimedSiblings:
    """Communicators of one division of a machine, on which a placement's entries were timed."""

    machine: Shape
    """Shape of the communicator of all GPUs."""
    stride: int
    """Distance in GPUs of a host from a rank to the next one: 1 for neighbours."""
    siblings: tuple[int, ...]
    """Numbers of the communicators among the siblings of the division, ascending."""


@dataclass(frozen=True, slots=True)
class SeenPlacement:
    """Communicators of a shape that NCCL's estimates tell from all others of it."""

    shape: Shape
    number: int
    """Number among those of its shape, from 0."""
    example: str
    """GPUs of a communicator, for people."""
    lines: tuple[tuple[Collective, EstimateLine], ...]
    """Estimates by operation, in the order of their codes."""
    entries: tuple[Entry, ...]
    """Entries that come before those of the shape, by built-in configurations alone; sorted by
    operation and min_bytes."""
    timed: TimedSiblings | None = None
    """None: the table does not say."""


@dataclass(frozen=True, slots=True)
class SumOrder:
    """The one order in which a table adds the ranks' parts of an element, whatever the call."""

    shape: Shape
    operation: Collective
    order: str
    """As `((0+1)+(2+3))`: additions from left to right, rounded once for each bracket."""


@dataclass(frozen=True, slots=True)
class RunnersUp:
    """What was the fastest beside a key's entry: a job that learns tries it."""

    key: Key
    settings: tuple[BuiltinConfig, ...] = ()
    """NCCL's, the fastest first."""
    schedules: tuple[ScheduleConfig, ...] = ()
    """The executor's, the fastest first."""


def schedules_of(entries: Iterable[Entry], runners_up: Iterable[RunnersUp]) -> set[str]:
    """Return the content hashes of the schedules that a table of these refers to."""
    tried = {schedule.schedule for own in runners_up for schedule in own.schedules}
    return tried | {entry.schedule.schedule for entry in entries if entry.schedule is not None}


COMMUNICATOR_VARIABLES: Mapping[str, tuple[int, int]] = {
    "NCCL_MIN_CTAS": (2, 17),
    "NCCL_MAX_CTAS": (2, 17),
    "NCCL_CGA_CLUSTER_SIZE": (2, 17),
    "NCCL_COLLNET_ENABLE": (2, 27),
    "NCCL_NVLS_NCHANNELS": (2, 27),
    "NCCL_NCHANNELS_PER_NET_PEER": (2, 28),
}
"""Variables that a communicator can have by itself, in its configuration, with the first NCCL whose
`ncclConfig_t` says them: those of `tuccl/runtime/executor/communicator_settings.cc`."""


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """A variable of the process profile that the executor sets on communicators of a shape."""

    shape: Shape
    name: str


@dataclass(frozen=True)
class Table:
    """All entries for one machine, with the process profile they were measured under."""

    topology_name: str
    fingerprint: str
    gpu_models: tuple[str, ...]
    """Distinct PCI `vendor:device` of the GPUs, sorted; empty if unknown."""
    entries: tuple[Entry, ...]
    """Sorted by shape, operation and min_bytes; ranges of one (shape, operation) do not overlap."""
    profile: Mapping[str, str] = field(default_factory=dict)
    """Environment that every process of the job needs (NCCL_NTHREADS, ...): one per table."""
    schedules: tuple[StoredSchedule, ...] = ()
    """Schedules that entries and runners-up refer to, sorted by content hash."""
    placements: tuple[SeenPlacement, ...] = ()
    """Communicators with entries of their own, sorted by shape and number; those of a shape are all
    of them or none. `entries` are safe wherever ranks sit."""
    sums: tuple[SumOrder, ...] = ()
    """Of a table whose sums do not move: the order of each operation that reduces, sorted by shape
    and operation. Empty: entries were free to add in any order."""

    settings: tuple[Setting, ...] = ()
    """Variables of the profile that the executor sets on communicators of the shapes that were
    measured, so that other communicators do not have them; sorted."""
    runners_up: tuple[RunnersUp, ...] = ()
    """Of keys with an entry or without one; sorted as entries are, without overlaps."""

    def process_profile(self, *, executor: bool) -> dict[str, str]:
        """Return the part of the profile that the environment has to set.

        Args:
            executor: Whether jobs preload the executor.
        """
        return process_profile(self.profile, self.settings, executor=executor)

    @property
    def is_invariant(self) -> bool:
        """Whether the sums of its entries depend on the ranks' values alone."""
        return bool(self.sums)

    @property
    def all_entries(self) -> tuple[Entry, ...]:
        """The entries of shapes, then those of placements."""
        return (*self.entries, *(entry for own in self.placements for entry in own.entries))


def process_profile(
    profile: Mapping[str, str], settings: Iterable[Setting], *, executor: bool
) -> dict[str, str]:
    """Return the part of a profile that the environment has to set.

    Args:
        profile: The process profile of a table.
        settings: What the executor sets on communicators.
        executor: Whether jobs preload the executor.
    """
    by_executor = {own.name for own in settings} if executor else set()
    return {name: value for name, value in profile.items() if name not in by_executor}
