"""The JSON document of `workload import`, `show` and `record`."""

from __future__ import annotations

from typing import Literal

from lookup_tables.table import Operation
from tuccl.reports.documents.document import SCHEMA_VERSION, Document


class WorkloadOrigin(Document):
    """The recording that a workload was read from."""

    kind: str
    """nccl_log, kineto, inspector, csv or recorded."""
    files: list[str]
    left_out: list[str]
    """Parts that were left out, and why."""


class WorkloadCallFigures(Document):
    """The calls of one operation and size on communicators of one shape."""

    operation: Operation
    datatype: str | None
    """NCCL's name; None: the recording does not say."""
    reduction: str | None
    """nccl-tests' name; None: none, or the recording does not say."""
    size_bytes: int
    """As nccl-tests counts it."""
    ranks: int
    """Ranks of the communicator."""
    nodes: int | None
    """Nodes of the communicator; None: unknown."""
    siblings: int
    """Communicators of this shape that make the call at the same time."""
    in_place: bool | None
    """None: unknown."""
    graph: bool | None
    """Whether CUDA graphs launch the calls; None: unknown."""
    calls_per_step: float
    """Calls of one rank."""
    bytes_per_step: float
    us_per_call: float | None
    """Time in the recording, with the wait for other ranks; None: not in it."""
    exposed_us_per_call: float | None
    """Time by which a step is shorter without the call; None: unknown."""
    computation_us_per_call: float | None
    """Time in which the GPU computes beside the call; None: unknown."""
    exposed_computation_us_per_call: float | None
    """Time by which a step is shorter without that computation; None: unknown."""
    share_of_calls: float
    """Share of all calls of one rank, also of operations that no table has; 0 to 1."""
    share_of_bytes: float


class WorkloadNotTuned(Document):
    """Calls of an operation that no table has."""

    operation: str
    calls_per_step: float
    """Mean over the recorded ranks."""
    bytes_per_step: float
    share_of_calls: float
    share_of_bytes: float


class WorkloadDocument(Document):
    """`workload import` and `show`: the collectives that a job calls."""

    schema_version: Literal[8] = SCHEMA_VERSION
    file: str
    """The workload's file."""
    source: WorkloadOrigin
    ranks: int | None
    """Ranks of the job; None: unknown."""
    nodes: int | None
    """Nodes of the job; None: unknown."""
    steps: float | None
    """Steps that were recorded; None: unknown, and figures are of the whole recording."""
    calls_per_step: float
    """All calls of one rank."""
    bytes_per_step: float
    calls: list[WorkloadCallFigures]
    not_tuned: list[WorkloadNotTuned]
