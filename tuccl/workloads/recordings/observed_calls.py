"""The calls that a recording shows: by rank and communicator, before communicators are known."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from lookup_tables.table import Operation
from tuccl.quantities import MAX_SIZE_BYTES
from tuccl.workloads.workload import Datatype, Reduction

_OPERATIONS = frozenset(operation.value for operation in Operation)
_TIMES_RANKS = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})
"""Operations whose size is ranks times what one rank passes."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """Calls that are alike."""

    operation: str
    """As tables name it; else the recording's name in lower case."""
    size_bytes: int
    """As nccl-tests counts it."""
    datatype: Datatype | None = None
    reduction: Reduction | None = None
    in_place: bool | None = None
    graph: bool | None = None

    @property
    def is_tuned(self) -> bool:
        """Whether tables have this operation."""
        return self.operation in _OPERATIONS


@dataclass(slots=True, eq=False)
class RankCalls:
    """The calls of one rank on one communicator."""

    member: Hashable
    """The GPU that is the rank, as far as the recording tells GPUs apart."""
    ranks: int
    """Ranks of the communicator."""
    identity: Hashable = None
    """Equal for the ranks of one communicator; None: unknown."""
    rank: int | None = None
    nodes: int | None = None
    """Nodes of the communicator, if the recording says so."""
    host: str = ""
    """Name of the host; empty: unknown."""
    members: frozenset[Hashable] = frozenset()
    """All members of the communicator; empty: unknown."""
    calls: Counter[CallForm] = field(default_factory=Counter)
    times_us: dict[CallForm, list[float]] = field(default_factory=dict)
    """Sum and number of the times of calls."""
    exposed_us: dict[CallForm, list[float]] = field(default_factory=dict)
    """Sum and number of the calls' exposed times; empty: unknown."""
    computation_us: dict[CallForm, list[float]] = field(default_factory=dict)
    """Sum and number of times of computation beside the calls; empty: unknown."""
    exposed_computation_us: dict[CallForm, list[float]] = field(default_factory=dict)
    """Sum and number of times by which a step is shorter without it; empty: unknown."""

    @property
    def place(self) -> tuple[int, str]:
        """Place among the ranks of a communicator, whatever the order of files."""
        return (-1 if self.rank is None else self.rank, str(self.member))

    def add_time(self, form: CallForm, time_us: float) -> None:
        """Add the time of a call."""
        total = self.times_us.setdefault(form, [0.0, 0])
        total[0] += time_us
        total[1] += 1


@dataclass(slots=True)
class Observed:
    """All that the files of a recording show."""

    views: list[RankCalls] = field(default_factory=list)
    sequences: dict[Hashable, array[int]] = field(default_factory=dict)
    """Each member's calls in their order, equal numbers for equal calls; empty: order unknown."""
    steps: dict[Hashable, float] = field(default_factory=dict)
    """Steps that the recording of a member covers, if it says so."""
    job_ranks: int | None = None
    """Ranks of the job, if the recording says so."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of things that were left out, by their name."""
    notes: list[str] = field(default_factory=list)
    """Notes for people on what the recording cannot tell."""


def full_size(operation: str, passed_bytes: int, ranks: int) -> int | None:
    """Return the size as nccl-tests counts it; None: no call has it.

    Args:
        operation: As tables name it.
        passed_bytes: NCCL's count times the size of an element.
        ranks: Ranks of the communicator.
    """
    size_bytes = passed_bytes * (ranks if operation in _TIMES_RANKS else 1)
    return size_bytes if size_bytes <= MAX_SIZE_BYTES else None
