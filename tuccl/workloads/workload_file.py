"""The JSON form of a workload: `tuccl workload import` and `record` write it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lookup_tables.table import MAX_RANKS, Operation
from probes.inputs.messages import first_fault
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError
from tuccl.quantities import MAX_SIZE_BYTES
from tuccl.workloads.workload import (
    Datatype,
    NotTuned,
    Reduction,
    SourceKind,
    Workload,
    WorkloadCall,
    WorkloadSource,
    sorted_calls,
)
from tuccl.workspace.atomic_file import write_atomically

_MOST = 1e30
_Count = Annotated[float, Field(gt=0.0, lt=_MOST, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0.0, lt=_MOST, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=4096)]
_Ranks = Annotated[int, Field(ge=2, le=MAX_RANKS)]
_Nodes = Annotated[int, Field(ge=1, le=MAX_RANKS)]


class _Form(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )


class _Source(_Form):
    kind: SourceKind
    """How the calls were recorded."""
    files: tuple[_Text, ...]
    """Names of the files that were read."""
    left_out: tuple[_Text, ...]
    """Parts that were left out, and why."""


class _Call(_Form):
    operation: Operation
    datatype: Datatype | None
    """NCCL's name; null: unknown."""
    reduction: Reduction | None
    """nccl-tests' name; null: none, or unknown."""
    size_bytes: Annotated[int, Field(ge=1, le=MAX_SIZE_BYTES)]
    """As nccl-tests counts it."""
    ranks: _Ranks
    """Ranks of the communicator."""
    nodes: _Nodes | None
    """Nodes of the communicator; null: unknown."""
    siblings: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    """Communicators of this shape that make the call at the same time."""
    in_place: bool | None
    """null: unknown."""
    graph: bool | None
    """Whether CUDA graphs launch the calls; null: unknown."""
    calls_per_step: _Count
    """Calls of one rank."""
    us_per_call: _Count | None
    """Time in the recording; null: not in it."""
    exposed_us_per_call: _Amount | None = None
    """Time by which a step is shorter without the call; null: unknown."""
    computation_us_per_call: _Amount | None = None
    """Time in which the GPU computes beside the call; null: unknown."""
    exposed_computation_us_per_call: _Amount | None = None
    """Time by which a step is shorter without that computation; null: unknown."""

    @model_validator(mode="after")
    def _nodes_have_ranks(self) -> _Call:
        if self.nodes is not None and self.nodes > self.ranks:
            raise ValueError(f"{self.ranks} ranks cannot be on {self.nodes} nodes")
        return self


class _NotTuned(_Form):
    operation: Annotated[str, Field(min_length=1, max_length=64)]
    calls_per_step: _Amount
    bytes_per_step: _Amount


class WorkloadFileDocument(_Form):
    """The collectives that a job calls."""

    format: Literal["tuccl-workload"]
    version: Literal[1]
    source: _Source
    ranks: Annotated[int, Field(ge=1, le=MAX_RANKS)] | None
    """Ranks of the job; null: unknown."""
    nodes: _Nodes | None
    """Nodes of the job; null: unknown."""
    steps: _Count | None
    """Steps that the recording covers; null: unknown, and figures are of the whole recording."""
    calls: tuple[_Call, ...]
    not_tuned: tuple[_NotTuned, ...]
    """Calls of operations that no table has."""


class _Version(BaseModel):
    """The members that say whether this release can read the rest."""

    model_config = ConfigDict(strict=True)

    format: Literal["tuccl-workload"]
    version: int


def workload_document(workload: Workload) -> WorkloadFileDocument:
    """Return the document of a workload."""
    values = asdict(workload) | {"calls": [asdict(call) for call in sorted_calls(workload.calls)]}
    return WorkloadFileDocument.model_validate(
        {"format": "tuccl-workload", "version": 1, **values}, strict=False
    )


def workload_text(workload: Workload) -> str:
    """Return the file's text; the same workload gives the same bytes."""
    return workload_document(workload).model_dump_json(indent=1) + "\n"


def write_workload(path: Path, workload: Workload) -> None:
    """Write a workload.

    Raises:
        WorkspaceError: The file cannot be written.
    """
    write_atomically(path, workload_text(workload))


def read_workload(path: Path) -> Workload:
    """Return the workload of a file.

    Raises:
        InputFileError: It cannot be read, or holds no workload of this version.
    """
    try:
        text = read_regular_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputFileError(
            f"cannot read {path}: {reason}; name a file that `tuccl workload import` wrote"
        ) from error
    _require_version(text, path)
    try:
        document = WorkloadFileDocument.model_validate_json(text)
    except ValidationError as error:
        raise InputFileError(
            f"{path}: {first_fault(error)}; write it again with `tuccl workload import`"
        ) from error
    return _workload(document)


def _require_version(text: str, path: Path) -> None:
    try:
        found = _Version.model_validate_json(text)
    except ValidationError as error:
        raise InputFileError(
            f"{path}: no workload of TuCCL's; make one of a recording with `tuccl workload import`"
        ) from error
    if found.version != 1:
        raise InputFileError(
            f"{path}: version {found.version} of workloads, and this release reads 1; use the "
            "release that wrote it, or import the recording again"
        )


def _workload(document: WorkloadFileDocument) -> Workload:
    return Workload(
        source=WorkloadSource(**dict(document.source)),
        ranks=document.ranks,
        nodes=document.nodes,
        steps=document.steps,
        calls=sorted_calls(WorkloadCall(**dict(call)) for call in document.calls),
        not_tuned=tuple(NotTuned(**dict(kind)) for kind in document.not_tuned),
    )
