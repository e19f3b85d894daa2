"""`FinishedRun`: a complete run with its table and report, read back.

Modules that only read results import this module, and none that produces them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_from_parquet_bytes
from lookup_tables.table import Table
from probes.inputs.regular_file import read_regular_file
from probes.topology.graph import Topology
from probes.topology.json_form import topology_from_json
from probes.topology.validation import check_structure
from tuccl.errors import InvalidTopologyError, MachineError, TableError, WorkspaceError
from tuccl.reports.report import Report, read_report
from tuccl.workspace.runs import Run, Workspace, read_text_if_present


@dataclass(frozen=True)
class FinishedRun:
    """A complete run: the result of `init`, and the input of `table`."""

    run: Run
    table: Table
    report: Report
    already_done: bool
    """Whether the run was complete before the command."""


def current_run(root: Path) -> FinishedRun:
    """Read the current run of a workspace.

    Raises:
        WorkspaceError: The workspace has none, or its files are damaged.
    """
    run = Workspace(root).current()
    return FinishedRun(run, read_table(run), read_report(run), already_done=True)


def finished(run: Run) -> FinishedRun | None:
    """Read a complete run; None where the run is incomplete.

    A run with a damaged or missing file is incomplete: the file is written again from the log.
    """
    try:
        record = run.record()
        if record is None or not record.complete:
            return None
        table, report = read_table(run), read_report(run)
        if read_regular_file(run.bundle) != bundle_bytes(table):
            return None
        read_machine(run)
    except (WorkspaceError, OSError):
        return None
    return FinishedRun(run, table, report, already_done=True)


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
