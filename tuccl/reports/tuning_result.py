"""`TuningResult`: a finished run with its table and report, and what a job gains from it.

Modules that only read results import this module, and none that produces them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lookup_tables.bundles.bundle import Bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_from_parquet_bytes
from lookup_tables.table import Shape, Table
from probes.inputs.regular_file import read_regular_file
from probes.topology.graph import Topology
from probes.topology.json_form import topology_from_json
from probes.topology.validation import check_structure
from tuccl.errors import InvalidTopologyError, MachineError, TableError, WorkspaceError
from tuccl.models.figures import communicator_shape
from tuccl.reports.entries import EntryFigures, entries_of
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.job_gains import JobGains, job_gains, obstacle_to
from tuccl.reports.keys import KeyFigures, frame_of
from tuccl.reports.report import Report, read_report
from tuccl.reports.step_gain import StepGain, step_of
from tuccl.runtime import has_executor
from tuccl.workspace.runs import Run, Workspace, read_text_if_present

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TunedTable:
    """A table from a shipped directory or a file: the winning configurations of one machine."""

    table: Table | Bundle
    """The table as the Parquet file or the bundle has it."""
    has_executor: bool = field(default_factory=has_executor, kw_only=True)
    """Whether a job that uses it has the executor: that of a shipped directory, or of this
    installation."""

    @cached_property
    def entries(self) -> tuple[EntryFigures, ...]:
        """The entries as a job runs them; those by where ranks sit last."""
        evidence = self.times or Evidence.MEASURED
        return tuple(entries_of(self.table, evidence, has_executor=self.has_executor))

    @property
    def keys(self) -> tuple[KeyFigures, ...]:
        """The keys that are known: those with an entry."""
        return self.entries

    @property
    def frame(self) -> pd.DataFrame:
        """The keys as a pandas frame.

        `stock_us` and `table_us` are times, `gain` their ratio with the bounds `low` and `high`.
        """
        return frame_of(self.keys)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Communicators that the table is for."""
        return tuple(sorted({entry.key.shape for entry in self.table.entries}))

    @property
    def times(self) -> Evidence | None:
        """Evidence behind the times; None: a bundle does not say."""
        return None if isinstance(self.table, Bundle) else evidence_of(self.table, "")

    def profile_of(self, shape: Shape) -> dict[str, str]:
        """Return the profile's variables that communicators of a shape have in a job here."""
        table, evidence = self.table, self.times or Evidence.MEASURED
        executor = any(
            obstacle_to(entry, table, evidence, has_executor=self.has_executor) is None
            for entry in table.entries
            if entry.schedule is not None
        )
        own = table.process_profile(executor=executor)
        set_on = {setting.name for setting in table.settings if setting.shape == shape}
        return {name: v for name, v in table.profile.items() if name in own or name in set_on}


@dataclass(frozen=True)
class TuningResult(TunedTable):
    """A finished run: what `tune` returns, and `read_table` of a workspace."""

    table: Table
    run: Run
    """The files of the run: `table.parquet`, `bundle.tuccl`, `report.json`, measurements."""
    report: Report
    already_done: bool
    """Whether the run was complete before."""

    def __post_init__(self) -> None:
        """Let a replayed record have the executor of the machine that was recorded."""
        if self.report.recorded_with_executor:
            object.__setattr__(self, "has_executor", True)

    @cached_property
    def gains(self) -> JobGains:
        """The gains of a job on this installation, or on the machine whose record was replayed."""
        return job_gains(self.table, self.report, has_executor=self.has_executor)

    @property
    def keys(self) -> tuple[KeyFigures, ...]:
        """All keys that were tuned, as a job here runs them."""
        return self.gains.keys

    @property
    def frame(self) -> pd.DataFrame:
        """The keys as a pandas frame, with the time of a job here as `table_us`."""
        return self.gains.frame

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Communicators that were tuned."""
        shapes = self.report.shapes.values() or [communicator_shape(read_machine(self.run))]
        return tuple(sorted(shapes))

    @property
    def times(self) -> Evidence:
        """Evidence behind the times."""
        return self.gains.evidence

    @property
    def speedup(self) -> float:
        """Speedup of a job here: geometric mean over the keys."""
        return self.gains.speedup

    @property
    def caveats(self) -> tuple[str, ...]:
        """Reasons not to rely on the table, and why its schedules do not run here."""
        return self.gains.caveats

    @cached_property
    def step(self) -> StepGain | None:
        """The gain of a step of the workload; None: the table was tuned for none."""
        return step_of(self.report, self.gains)


def current_run(root: Path) -> TuningResult:
    """Read the current run of a workspace.

    Raises:
        WorkspaceError: The workspace has none, or its files are damaged.
    """
    run = Workspace(root).current()
    return TuningResult(read_table(run), run, read_report(run), already_done=True)


def finished(run: Run) -> TuningResult | None:
    """Read a complete run; None where the run is incomplete.

    A run with a damaged or missing file is incomplete: the file is written again from the log.
    """
    try:
        record = run.record()
        return read_result(run) if record is not None and record.complete else None
    except WorkspaceError:
        return None


def read_result(run: Run) -> TuningResult:
    """Read a run that its record says is complete.

    Raises:
        WorkspaceError: A file is missing, damaged or of another run.
    """
    table, report = read_table(run), read_report(run)
    try:
        bundle = read_regular_file(run.bundle)
    except OSError as error:
        raise WorkspaceError(
            f"cannot read {run.bundle} ({error.strerror}); run `tuccl init` again"
        ) from error
    if bundle != bundle_bytes(table):
        raise WorkspaceError(f"{run.bundle} is not that of {run.table}; run `tuccl init` again")
    read_machine(run)
    return TuningResult(table, run, report, already_done=True)


def read_table(run: Run) -> Table:
    """Read the table of a run.

    Raises:
        WorkspaceError: the table is missing or damaged.
    """
    try:
        return read_table_file(run.table)
    except OSError as error:
        raise WorkspaceError(
            f"cannot read {run.table} ({error.strerror}); run `tuccl init` again"
        ) from error
    except TableError as error:
        raise WorkspaceError(str(error)) from error


def read_table_file(path: Path) -> Table:
    """Read a table from a Parquet file.

    Raises:
        OSError: The file cannot be read.
        TableError: The file is not Parquet, damaged, of another version, or has other
            columns.
    """
    return table_from_parquet_bytes(read_regular_file(path), str(path))


def read_machine(run: Run) -> Topology:
    """Read the machine of a run.

    Raises:
        WorkspaceError: its file is missing or damaged.
    """
    text = read_text_if_present(run.topology)
    if text is None:
        raise WorkspaceError(f"{run.topology} is missing; run `tuccl init` again")
    try:
        machine = topology_from_json(text, str(run.topology))
        check_structure(machine)
    except InvalidTopologyError as error:
        raise WorkspaceError(f"{run.topology}: {error}; run `tuccl init` again") from error
    except MachineError as error:
        raise WorkspaceError(f"{error}; run `tuccl init` again") from error
    return machine
