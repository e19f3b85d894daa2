"""`diff_tables`: two tables that `tuccl diff` compares, from any places that hold one.

A place is a workspace, a run of one (`tuccl-workspace/runs/IDENTITY`), a directory of `tuccl ship`,
or a version that such a directory keeps: `DIR@3`, or its folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lookup_tables.table import Table
from tuccl.errors import UsageError, WorkspaceError
from tuccl.reports.evidence import evidence_of
from tuccl.reports.keys import KeyFigures
from tuccl.reports.table_difference import (
    DiffSide,
    TableDifference,
    compare_keys,
    keys_of_entries,
    keys_of_run,
)
from tuccl.reports.table_parts import measured_nccl
from tuccl.reports.tuning_result import finished
from tuccl.runtime import EXECUTOR_NAME
from tuccl.search.statistics.intervals import START_ERROR
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.sourcing import ENVIRONMENT_NAME
from tuccl.shipping.versions import find_version, versions_of
from tuccl.workspace.runs import Run, Workspace

_Placed = tuple[DiffSide, Sequence[KeyFigures], float]
"""A table, its keys, and the error of a ratio of two starts of the workers there."""


def diff_tables(first: str, second: str) -> TableDifference:
    """Compare the tables of two places.

    Raises:
        UsageError: A place holds no table, or a directory keeps no such version.
        WorkspaceError: A workspace has no finished run, or a file is damaged.
    """
    (before, old, error), (now, new, error_now) = _read(first), _read(second)
    return TableDifference(before, now, compare_keys(old, new, max(error, error_now)))


def _read(name: str) -> _Placed:
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
        f"{path} is not a directory: name a workspace, a run of one, a directory of `tuccl ship`, "
        "or a version that it keeps, as DIR@3"
    )


def _split(name: str) -> tuple[Path, str]:
    """Return directory and version of `DIR@3`; a path that exists has no version."""
    directory, mark, version = name.rpartition("@")
    if not mark or not directory or Path(name).exists():
        return Path(name), ""
    return Path(directory), version


def _of_shipped(name: str, directory: Path) -> _Placed:
    view = view_shipped(directory)
    table = view.table
    if table is None:
        raise WorkspaceError(f"{directory}: {view.problems[0]}; ship there again")
    executor = (directory / EXECUTOR_NAME).is_file()
    return _placed(
        name, table, keys_of_entries(table, evidence_of(table, ""), has_executor=executor)
    )


def _of_run(name: str, run: Run) -> _Placed:
    found = finished(run)
    if found is None:
        raise WorkspaceError(
            f"run {run.root} is not finished or damaged; the command that began it continues it"
        )
    error = max(START_ERROR, found.report.start_error)
    return _placed(name, found.table, keys_of_run(found), error)


def _placed(
    name: str, table: Table, keys: Sequence[KeyFigures], start_error: float = START_ERROR
) -> _Placed:
    nccl = measured_nccl(table) or None
    side = DiffSide(
        name, table.topology_name, table.fingerprint, nccl, dict(table.profile), len(keys)
    )
    return side, keys, start_error
