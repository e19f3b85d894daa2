"""`tuccl explain`: which entry applies to an operation and size, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lookup_tables.lookup import lookup
from lookup_tables.table import Entry, Operation, Shape, Table
from tuccl.errors import WorkspaceError
from tuccl.results import REPORT_VERSION
from tuccl.workspace import Workspace, read_text_if_present


@dataclass(frozen=True)
class Explanation:
    """What a call would get, and the evidence."""

    operation: Operation
    size_bytes: int
    shape: Shape
    entry: Entry | None
    tuned_bytes: int
    """The tuned size nearest to the call's."""
    evidence: dict[str, Any]
    """The report's record of that size."""


def read_report(workspace: Workspace) -> dict[str, Any]:
    """report.json of a finished run.

    Raises:
        WorkspaceError: when there is none, or it is damaged.
    """
    text = read_text_if_present(workspace.report)
    if text is None:
        raise WorkspaceError(
            f"no report in workspace {workspace.root}; run `tuccl init` there first"
        )
    try:
        report: dict[str, Any] = json.loads(text)
        if report["version"] != REPORT_VERSION:
            raise WorkspaceError(
                f"{workspace.report} has version {report['version']}, this release reads "
                f"{REPORT_VERSION}; tune again"
            )
    except (ValueError, KeyError, TypeError) as error:
        raise WorkspaceError(f"{workspace.report} is damaged ({error}); tune again") from error
    return report


def explain(
    table: Table, report: dict[str, Any], operation: Operation, size_bytes: int, shape: Shape
) -> Explanation:
    """The entry for a call with the evidence of the nearest tuned size.

    Raises:
        WorkspaceError: when the operation was not tuned.
    """
    tuned = [key for key in report["keys"] if key["operation"] == operation.value]
    if not tuned:
        known = sorted({key["operation"] for key in report["keys"]})
        raise WorkspaceError(
            f"{operation.value} was not tuned in this workspace, only {', '.join(known)}; "
            "run `tuccl init --operations` in another workspace"
        )
    nearest = min(tuned, key=lambda key: _distance(key["size_bytes"], size_bytes))
    return Explanation(
        operation=operation,
        size_bytes=size_bytes,
        shape=shape,
        entry=lookup(table, operation, size_bytes, shape),
        tuned_bytes=nearest["size_bytes"],
        evidence=nearest,
    )


def _distance(a: int, b: int) -> float:
    return max(a, b) / min(a, b)
