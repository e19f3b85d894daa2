"""The command `tuccl report`."""

from __future__ import annotations

from dataclasses import replace

import typer

from tuccl.cli.options.report_command import ReportCommand
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption, WorkspaceOption
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

EXAMPLES = examples(
    "tuccl report",
    "tuccl report /shared/tuccl --output shared.html",
    "tuccl report /shared/tuccl tuccl-workspace --output compared.html",
    "tuccl report --follow tuccl-workspace",
)


@with_fields()
def report(
    command: ReportCommand,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page on a table, or on two: gains, curves, search, machine, schedules.

    The page contains all that it needs and fetches nothing. With --json the figures behind it go
    to standard output. With --follow the page of a run that goes on is served instead.
    """
    from tuccl.cli.commands import report as reporting

    raise typer.Exit(reporting.report(replace(command, workspace=workspace, as_json=as_json)))
