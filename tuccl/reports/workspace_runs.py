"""`WorkspaceRuns`: the runs of a workspace, which of them commands work with, and their gains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import UsageError, WorkspaceError
from tuccl.reports.evidence import Evidence
from tuccl.reports.tuning_result import read_result
from tuccl.workspace.runs import Run, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run of a workspace."""

    name: str
    current: bool
    """Whether commands work with it if none is named."""
    begun_at: str | None
    """ISO 8601, UTC; None if run.json is damaged."""
    finished: bool
    """Whether its run.json says so; the command that began it continues it otherwise."""
    problem: str | None
    """Names the file that is missing or damaged, and the remedy; None if the run is intact."""
    topology: str | None
    """Name of its machine. None if the run is unfinished or damaged, like all fields below."""
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
    problem: str | None
    """Why the current run is unknown; None if it is known or was never set."""


def runs_of(workspace: Path) -> WorkspaceRuns:
    """List the runs of a workspace.

    Raises:
        UsageError: The directory is not a workspace.
    """
    if not (workspace / "runs").is_dir():
        raise UsageError(f"{workspace} is not a workspace: name one that `tuccl init` wrote")
    here = Workspace(workspace)
    current: Run | None = None
    problem = None
    if (workspace / "current.json").exists():
        try:
            current = here.current()
        except WorkspaceError as error:
            problem = str(error)
    found = sorted(_listed(here, current), key=lambda run: (run.begun_at or "", run.name))
    return WorkspaceRuns(workspace, tuple(found), problem)


def _listed(workspace: Workspace, current: Run | None) -> Iterator[ListedRun]:
    for run in workspace.runs():
        record = result = problem = None
        try:
            record = run.record()
            if record is None:
                continue
            if record.complete:
                result = read_result(run)
        except WorkspaceError as error:
            problem = str(error)
        yield ListedRun(
            name=run.root.name,
            current=current is not None and run.root == current.root,
            begun_at=None if record is None else record.tuned_at,
            finished=record is not None and record.complete,
            problem=problem,
            topology=None if result is None else result.table.topology_name,
            backend=None if result is None else result.report.source,
            times=None if result is None else result.times,
            keys=None if result is None else len(result.keys),
            entries=None if result is None else len(result.table.all_entries),
            gain=None if result is None else result.speedup,
        )
