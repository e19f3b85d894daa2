"""`ReportedTable`: a table with all that its place holds, from a workspace or a shipped directory.

A workspace has the run: its report, machine, sketches, schedules and measurements. A directory of
`tuccl ship` has the table and the schedules that won, so its page has fewer parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lookup_tables.provenance import Provenance
from lookup_tables.table import Table
from probes.topology.graph import Topology
from tuccl.errors import TableError, UsageError, WorkspaceError
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.job_gains import JobGains, job_gains
from tuccl.reports.json_form import fields_of
from tuccl.reports.report import Report, read_report
from tuccl.reports.step_gain import StepGain, step_of
from tuccl.reports.tuning_result import read_machine, read_table, read_table_file
from tuccl.runtime import EXECUTOR_NAME, has_executor
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.shipping.shipped_directory import TABLE_NAME
from tuccl.shipping.sourcing import ENVIRONMENT_NAME
from tuccl.workspace.atomic_file import absolute
from tuccl.workspace.runs import Run, Workspace


@dataclass(frozen=True)
class ReportedTable:
    """A table, and what its place holds beside it."""

    name: str
    """The place as the user named it."""
    root: Path
    """Its absolute path."""
    table: Table
    has_executor: bool
    """Whether a job that uses this place has the executor."""
    run: Run | None = None
    """A shipped directory has no run, and none of what follows except `shipped_step`."""
    identity: str = ""
    tuned_at: str = ""
    report: Report | None = None
    machine: Topology | None = None
    shipped_step: StepGain | None = None
    """The gain of a step of the workload, as the manifest has it."""

    @cached_property
    def gains(self) -> JobGains | None:
        """The gains of a job that uses this place."""
        if self.report is None:
            return None
        has_executor = self.has_executor or self.report.recorded_with_executor
        return job_gains(self.table, self.report, has_executor=has_executor)

    @property
    def step(self) -> StepGain | None:
        """The gain of a step of the workload that the table was tuned for, if it was for one."""
        if self.report is None or self.gains is None:
            return self.shipped_step
        return step_of(self.report, self.gains)

    @property
    def evidence(self) -> Evidence:
        """The evidence behind the times."""
        return evidence_of(self.table, "" if self.report is None else self.report.source)

    @property
    def provenance(self) -> Provenance | None:
        """The provenance of the first entry that states one."""
        stated = (entry.provenance for entry in self.table.all_entries)
        return next((found for found in stated if found is not None), None)

    @property
    def dates(self) -> tuple[str, ...]:
        """The first and the last date of the table, in ISO 8601; one if they are the same."""
        found = {entry.tuned_at for entry in self.table.all_entries} | {self.tuned_at}
        dates = sorted(filter(None, found))
        return tuple(dict.fromkeys((dates[0], dates[-1]))) if dates else ()


def read_place(place: Path, run: str | None = None) -> ReportedTable:
    """Read the table of a workspace, or of a directory of `tuccl ship`.

    Args:
        place: The directory.
        run: Name of a run of the workspace; the default is the current one.

    Raises:
        UsageError: The directory is neither, or the workspace has no such run.
        WorkspaceError: The workspace has no finished run, or a file is damaged.
    """
    root = absolute(place)
    if (root / ENVIRONMENT_NAME).exists() or (root / MANIFEST_NAME).exists():
        if run is not None:
            raise UsageError(f"{place} is a shipped directory, which has no runs; leave out --run")
        return _shipped(root, str(place))
    workspace = Workspace(place)
    found = workspace.current() if run is None else workspace.named(run)
    return _of_run(found, str(place), root)


def _of_run(run: Run, name: str, root: Path) -> ReportedTable:
    record = run.record()
    if record is None or not record.complete:
        raise WorkspaceError(
            f"run {run.root.name} of {name} is not finished; the command that began it continues it"
        )
    return ReportedTable(
        name,
        root,
        read_table(run),
        has_executor(),
        run,
        record.identity,
        record.tuned_at,
        read_report(run),
        read_machine(run),
    )


def _shipped(root: Path, name: str) -> ReportedTable:
    path = root / TABLE_NAME
    try:
        table = read_table_file(path)
    except OSError as error:
        raise WorkspaceError(
            f"cannot read {path} ({error.strerror}); `tuccl ship` writes it again"
        ) from error
    except TableError as error:
        raise WorkspaceError(f"{error}; `tuccl ship` writes it again") from error
    manifest = read_manifest(root)
    sums = None if manifest is None else manifest.step
    step = None if sums is None else StepGain(**fields_of(sums))
    return ReportedTable(name, root, table, (root / EXECUTOR_NAME).exists(), shipped_step=step)
