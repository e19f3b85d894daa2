"""`PlacedTable`: a table that `tuccl diff` is given, from any place that holds one.

A place is a workspace, a run of one (`tuccl-workspace/runs/IDENTITY`), a directory of `tuccl ship`,
or a version that such a directory keeps: `DIR@3`, or its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import UsageError, WorkspaceError
from tuccl.models.figures import communicator_shape
from tuccl.reports.evidence import evidence_of
from tuccl.reports.finished_run import FinishedRun, finished, read_machine
from tuccl.reports.table_difference import (
    Promise,
    TunedCall,
    promises_of_entries,
    promises_of_run,
)
from tuccl.reports.table_parts import measured_nccl
from tuccl.runtime import EXECUTOR_NAME
from tuccl.shipping.shipped_directory import ENVIRONMENT_NAME
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.versions import find_version, versions_of
from tuccl.workspace.runs import Run, Workspace


@dataclass(frozen=True, slots=True)
class PlacedTable:
    """A table as `tuccl diff` compares it."""

    name: str
    """The place as the user named it."""
    topology_name: str
    fingerprint: str
    nccl: str
    """Version of NCCL that was measured; empty: none was, or it is unknown."""
    profile: Mapping[str, str]
    promises: Mapping[TunedCall, Promise]


def read_placed_table(name: str) -> PlacedTable:
    """Read the table of a place.

    Raises:
        UsageError: The place holds no table, or the directory keeps no such version.
        WorkspaceError: The workspace has no finished run, or a file is damaged.
    """
    path, version = _split(name)
    if version:
        return _of_shipped(name, find_version(path, versions_of(path), version).folder)
    if (path / ENVIRONMENT_NAME).is_file():
        return _of_shipped(name, path)
    if (path / "run.json").is_file():
        return _of_run(name, Run(path))
    if path.is_dir():
        return _of_run(name, Workspace(path).current())
    raise UsageError(
        f"{path} is no directory: name a workspace, a run of one, a directory of `tuccl ship`, or "
        "a version that it keeps, as DIR@3"
    )


def _split(name: str) -> tuple[Path, str]:
    """Return directory and version of `DIR@3`; a path that exists has no version."""
    directory, mark, version = name.rpartition("@")
    if not mark or not directory or Path(name).exists():
        return Path(name), ""
    return Path(directory), version


def _of_shipped(name: str, directory: Path) -> PlacedTable:
    view = view_shipped(directory)
    table = view.table
    if table is None:
        raise WorkspaceError(f"{directory}: {view.problems[0]}; ship there again")
    promises = promises_of_entries(
        table, evidence_of(table, ""), has_executor=(directory / EXECUTOR_NAME).is_file()
    )
    return PlacedTable(
        name, table.topology_name, table.fingerprint, measured_nccl(table), table.profile, promises
    )


def _of_run(name: str, run: Run) -> PlacedTable:
    found = finished(run)
    if found is None:
        raise WorkspaceError(
            f"run {run.root} is not finished or damaged; the command that began it continues it"
        )
    return placed_run(name, found)


def placed_run(name: str, found: FinishedRun) -> PlacedTable:
    """Return the table of a finished run."""
    table = found.table
    whole = communicator_shape(read_machine(found.run))
    return PlacedTable(
        name, table.topology_name, table.fingerprint, measured_nccl(table), table.profile,
        promises_of_run(found, whole),
    )  # fmt: skip
