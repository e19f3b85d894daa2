"""`WorkspaceRuns`: the runs of a workspace, which of them commands work with, and their gains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import UsageError, WorkspaceError
from tuccl.reports.evidence import Evidence
from tuccl.reports.tuning_result import finished
from tuccl.workspace.runs import Run, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run of a workspace."""

    name: str
    current: bool
    """Whether commands work with it if none is named."""
    begun_at: str
    """ISO 8601, UTC."""
    finished: bool
    """Whether it has a table; the command that began it continues it otherwise."""
    topology: str | None
    """Name of its machine; None: there is no table yet, as for what follows."""
    backend: str | None
    """Backend that took or computed the times, also where a record of it was replayed."""
    times: Evidence | None
    keys: int | None
    entries: int | None
    gain: float | None
    """Speedup of a job here over stock NCCL: geometric mean over its keys."""


@dataclass(frozen=True, slots=True)
class WorkspaceRuns:
    """`runs`: what a workspace holds."""

    workspace: Path
    runs: tuple[ListedRun, ...]
    """The oldest first."""


def runs_of(workspace: Path) -> WorkspaceRuns:
    """List the runs of a workspace.

    Raises:
        UsageError: The directory is not a workspace.
        WorkspaceError: A run's record is damaged.
    """
    if not (workspace / "runs").is_dir():
        raise UsageError(f"{workspace} is not a workspace: name one that `tuccl init` wrote")
    found = sorted(_listed(Workspace(workspace)), key=lambda run: (run.begun_at, run.name))
    return WorkspaceRuns(workspace, tuple(found))


def _listed(workspace: Workspace) -> Iterator[ListedRun]:
    try:
        current: Run | None = workspace.current()
    except WorkspaceError:
        current = None
    for run in workspace.runs():
        record, result = run.record(), finished(run)
        if record is None:
            continue
        yield ListedRun(
            name=run.root.name,
            current=current is not None and run.root == current.root,
            begun_at=record.tuned_at,
            finished=result is not None,
            topology=None if result is None else result.table.topology_name,
            backend=None if result is None else result.report.source,
            times=None if result is None else result.times,
            keys=None if result is None else len(result.keys),
            entries=None if result is None else len(result.table.all_entries),
            gain=None if result is None else result.speedup,
        )
