"""The calls that a recording shows: by rank and communicator, before communicators are known."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from lookup_tables.collective import COLLECTIVES
from tuccl.quantities import MAX_SIZE_BYTES
from tuccl.workloads.workload import Datatype, Reduction

_OPERATIONS = frozenset(operation.value for operation in COLLECTIVES)
_BY_NAME = {operation.short_name: operation.value for operation in COLLECTIVES}
_TIMES_RANKS = frozenset(
    {"gather", "scatter", *(operation.value for operation in COLLECTIVES if operation.divides)}
)
"""Operations whose size is ranks times what one rank passes."""


class CallTime(StrEnum):
    """Times of calls that a recording may tell; the values are members of `WorkloadCall`."""

    IN_JOB = "us_per_call"
    EXPOSED = "exposed_us_per_call"
    COMPUTATION = "computation_us_per_call"
    EXPOSED_COMPUTATION = "exposed_computation_us_per_call"


@dataclass(slots=True)
class TimeSum:
    """Times of calls."""

    sum_us: float = 0.0
    number: int = 0

    def add(self, sum_us: float, number: int = 1) -> None:
        """Add a sum and the number of its times."""
        self.sum_us += sum_us
        self.number += number

    @property
    def mean_us(self) -> float:
        """Mean of the times, of which there is one at least."""
        return self.sum_us / self.number


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
    times: defaultdict[tuple[CallTime, CallForm], TimeSum] = field(
        default_factory=lambda: defaultdict(TimeSum)
    )
    """Times of the calls, as far as they are known."""

    @property
    def place(self) -> tuple[int, str]:
        """Place among the ranks of a communicator, whatever the order of files."""
        return (-1 if self.rank is None else self.rank, str(self.member))


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


def operation_named(name: str) -> str:
    """Return an operation as tables name it, however its words are joined; else the name itself."""
    plain = name.lower()
    return _BY_NAME.get(plain.replace("_", "").replace("-", ""), plain[:60] or "unnamed")


def full_size(operation: str, passed_bytes: int, ranks: int) -> int | None:
    """Return the size as nccl-tests counts it; None: no call has it.

    Args:
        operation: As tables name it.
        passed_bytes: NCCL's count times the size of an element.
        ranks: Ranks of the communicator.
    """
    size_bytes = passed_bytes * (ranks if operation in _TIMES_RANKS else 1)
    return size_bytes if size_bytes <= MAX_SIZE_BYTES else None
