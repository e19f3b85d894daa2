"""The command `tuccl tune`."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated

import typer

from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import (
    ForceOption,
    JsonOption,
    PlainLogOption,
    RecordToOption,
    WorkspaceOption,
)
from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import OUTPUT
from tuccl.options.run_options import RunOptions
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

EXAMPLES = examples(
    "tuccl tune --backend nccl --record h200.parquet --budget 10m",
    "tuccl tune --records h200.parquet",
)
_OF_INIT = {"fake_nodes", "share_gpus", "own_schedules"} | {
    field.name for field in fields(MachineOptions) if field.name != "topology"
}


@with_fields(
    without=_OF_INIT,
    helps={"topology": "As for init; if not given, the record's, or this host is probed."},
)
def tune(
    options: RunOptions,
    record: RecordToOption = None,
    force: ForceOption = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only tell how large the search is and what it may cost.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a run that was begun; never begin another.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    plain_log: PlainLogOption = False,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Search NCCL's own settings alone, without schedules. Run again, it continues."""
    from tuccl.cli.commands import tune as tuning_commands

    command = tuning_commands.TuneCommand(
        options=replace(options, schedules=False),
        workspace=workspace,
        record_to=record,
        force=force,
        dry_run=dry_run,
        resume=resume,
        as_json=as_json,
        plain_log=plain_log,
    )
    raise typer.Exit(tuning_commands.tune(command))
