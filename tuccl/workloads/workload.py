"""`Workload`: the collectives that a job calls, by operation, size and communicator shape.

Sizes follow nccl-tests, as the keys of a table do: all_gather and reduce_scatter count the larger
of the two buffers, ranks times what one rank gives or gets.

Figures are those of one rank and one step of the job; where the number of steps is unknown, those
of the whole recording. The bounds of members hold for files (`tuccl.workloads.workload_file`).

Units: bytes are integers, times microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from lookup_tables.collective import Collective
from lookup_tables.table import MAX_RANKS, Shape
from tuccl.quantities import MAX_SIZE_BYTES

_MOST = 1e30
Count = Annotated[float, Field(gt=0.0, lt=_MOST, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0.0, lt=_MOST, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=4096)]
Ranks = Annotated[int, Field(ge=1, le=MAX_RANKS)]
FILE_FORM = ConfigDict(
    extra="forbid",
    strict=True,
    use_attribute_docstrings=True,
    json_schema_serialization_defaults_required=True,
    defer_build=True,
)
"""How files are read into the classes below; made when one is read."""


class SourceKind(StrEnum):
    """Recordings by their form."""

    NCCL_LOG = "nccl_log"
    """Lines that NCCL prints under NCCL_DEBUG=INFO."""
    KINETO = "kineto"
    """A trace of PyTorch's profiler."""
    INSPECTOR = "inspector"
    """NCCL Inspector's JSON, one object a line."""
    CSV = "csv"
    RECORDED = "recorded"
    """`tuccl workload record` counted the calls itself."""


class Datatype(StrEnum):
    """Types of elements, with NCCL's names."""

    INT8 = "int8"
    UINT8 = "uint8"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    FLOAT8E4M3 = "float8e4m3"
    FLOAT8E5M2 = "float8e5m2"

    @property
    def element_bytes(self) -> int:
        """Size of an element."""
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES = dict(zip(Datatype, (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1), strict=True))
NCCL_DATATYPES = tuple(Datatype)
"""Types by their number in ncclDataType_t."""


class Reduction(StrEnum):
    """Reductions, with nccl-tests' names."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    AVG = "avg"
    CUSTOM = "custom"
    """Made by the program, as by ncclRedOpCreatePreMulSum."""


NCCL_REDUCTIONS = (Reduction.SUM, Reduction.PROD, Reduction.MAX, Reduction.MIN, Reduction.AVG)
"""Reductions by their number in ncclRedOp_t; higher numbers are the program's own."""


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """The recording that a workload was read from."""

    __pydantic_config__ = FILE_FORM

    kind: SourceKind
    """How the calls were recorded."""
    files: tuple[_Text, ...]
    """Names of the files, as they were given."""
    left_out: tuple[_Text, ...] = ()
    """Parts left out of the workload, and why: a clause each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCall:
    """The calls of one operation and size on communicators of one shape."""

    __pydantic_config__ = FILE_FORM

    operation: Collective
    datatype: Datatype | None
    """None: the recording does not say."""
    reduction: Reduction | None
    """None: the operation has none, or the recording does not say."""
    size_bytes: Annotated[int, Field(ge=1, le=MAX_SIZE_BYTES)]
    """As nccl-tests and tables count it."""
    ranks: Annotated[int, Field(ge=2, le=MAX_RANKS)]
    """Ranks of the communicator."""
    nodes: Ranks | None
    """Nodes of the communicator; None: unknown."""
    siblings: Ranks
    """Communicators of this shape that make the call at the same time, as far as the recording
    shows them."""
    in_place: bool | None
    """None: the recording does not say."""
    graph: bool | None
    """Whether CUDA graphs launch the calls; None: the recording does not say."""
    calls_per_step: Count
    """Calls of one rank."""
    us_per_call: Count | None
    """Time of a call as the recording has it, with its wait for other ranks; None: not in it."""
    exposed_us_per_call: _Amount | None = None
    """Its exposed time: by how much the step is shorter without the call; None: unknown."""
    computation_us_per_call: _Amount | None = None
    """Time in which the GPU computes beside it; None: unknown."""
    exposed_computation_us_per_call: _Amount | None = None
    """By how much the step is shorter without that computation; None: unknown."""

    @property
    def bytes_per_step(self) -> float:
        """Bytes that one rank's calls have together."""
        return self.calls_per_step * self.size_bytes

    @property
    def shape(self) -> Shape | None:
        """The communicator's shape, nodes taken as equal if they can be; None: nodes unknown."""
        if self.nodes is None:
            return None
        even = self.ranks % self.nodes == 0
        return Shape(self.ranks, self.nodes, self.ranks // self.nodes if even else 0)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Times of a step's calls."""

    time_us: float
    exposed_us: float
    """Time by which a step is shorter without them, at most `time_us`."""

    @property
    def hidden_share(self) -> float:
        """The share of their time that the step does not wait for."""
        return 1.0 - self.exposed_us / self.time_us


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTuned:
    """Calls of an operation that no table has: point-to-point calls, gather, scatter."""

    __pydantic_config__ = FILE_FORM

    operation: Annotated[str, Field(min_length=1, max_length=64)]
    """Its name: send, recv, gather, scatter, alltoallv."""
    calls_per_step: _Amount
    """Calls of one rank."""
    bytes_per_step: _Amount
    """Bytes of these calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The collectives of a job."""

    source: WorkloadSource
    ranks: int | None
    """Ranks of the job; None: unknown."""
    nodes: int | None
    """Nodes of the job; None: unknown."""
    steps: float | None
    """Steps that the recording covers; None: unknown, and figures are of the whole recording."""
    calls: tuple[WorkloadCall, ...]
    """In the order of `sorted_calls`."""
    not_tuned: tuple[NotTuned, ...] = ()
    """Sorted by operation."""

    @property
    def calls_per_step(self) -> float:
        """Calls of one rank, also of operations that no table has."""
        tuned = sum(call.calls_per_step for call in self.calls)
        return tuned + sum(kind.calls_per_step for kind in self.not_tuned)

    @property
    def bytes_per_step(self) -> float:
        """Bytes of these calls."""
        tuned = sum(call.bytes_per_step for call in self.calls)
        return tuned + sum(kind.bytes_per_step for kind in self.not_tuned)

    @property
    def exposure(self) -> Exposure | None:
        """Times of the calls whose exposed time is known; None: there is none."""
        time_us = exposed_us = 0.0
        for call in self.calls:
            if call.us_per_call is not None and call.exposed_us_per_call is not None:
                time_us += call.calls_per_step * call.us_per_call
                exposed_us += call.calls_per_step * min(call.us_per_call, call.exposed_us_per_call)
        return Exposure(time_us, exposed_us) if time_us > 0.0 else None


def sorted_calls(calls: Iterable[WorkloadCall]) -> tuple[WorkloadCall, ...]:
    """Return calls by shape, the largest first, then by operation, size, and all the rest."""
    return tuple(
        sorted(
            calls,
            key=lambda call: (
                -call.ranks,
                call.nodes or 0,
                call.operation.code,
                call.size_bytes,
                call.datatype or "",
                call.reduction or "",
                call.siblings,
                str(call.in_place),
                str(call.graph),
                call.calls_per_step,
            ),
        )
    )
