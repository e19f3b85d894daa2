"""The JSON form of a workload: `tuccl workload import` and `record` write it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from lookup_tables.collective import COLLECTIVES
from probes.inputs.messages import first_fault
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError
from tuccl.workloads.workload import (
    FILE_FORM,
    Count,
    NotTuned,
    Ranks,
    Workload,
    WorkloadCall,
    WorkloadSource,
    sorted_calls,
)
from tuccl.workspace.atomic_file import write_atomically


class WorkloadFileDocument(BaseModel):
    """The collectives that a job calls."""

    model_config = FILE_FORM

    format: Literal["tuccl-workload"]
    version: Literal[1]
    source: WorkloadSource
    ranks: Ranks | None
    """Ranks of the job; null: unknown."""
    nodes: Ranks | None
    """Nodes of the job; null: unknown."""
    steps: Count | None
    """Steps that the recording covers; null: unknown, and figures are of the whole recording."""
    calls: tuple[WorkloadCall, ...]
    not_tuned: tuple[NotTuned, ...]
    """Calls of operations that no table has."""

    @model_validator(mode="after")
    def _calls_can_be_made(self) -> Self:
        for call in self.calls:
            if call.operation not in COLLECTIVES:
                raise ValueError(f"NCCL has no collective {call.operation}")
            if call.nodes is not None and call.nodes > call.ranks:
                raise ValueError(f"{call.ranks} ranks cannot be on {call.nodes} nodes")
        return self


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
    return Workload(
        source=document.source,
        ranks=document.ranks,
        nodes=document.nodes,
        steps=document.steps,
        calls=sorted_calls(document.calls),
        not_tuned=document.not_tuned,
    )


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
