"""The commands `tuccl workload import` and `show`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.fields import with_fields
from tuccl.cli.help import Command, Group, examples
from tuccl.cli.options import JsonOption
from tuccl.inputs.workload_command import WorkloadImportCommand

app = typer.Typer(
    name="workload",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    help="Find out which collectives a job calls.",
)


@app.command(
    "import",
    cls=Command,
    epilog=examples(
        "tuccl workload import nccl.*.log -o W.json",
        "tuccl workload import trace_rank*.json.gz --ranks-per-node 8 -o W.json",
    ),
)
@with_fields()
def import_workload(command: WorkloadImportCommand, as_json: JsonOption = False) -> None:
    """Read the recordings of a job, count its calls and write the workload."""
    from tuccl.commands import workload

    raise typer.Exit(workload.import_workload(replace(command, as_json=as_json)))


@app.command(cls=Command, epilog=examples("tuccl workload show W.json"))
def show(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="W.json",
            help="A workload, as `tuccl workload import` writes it.",
            readable=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a workload's calls and bytes per step, and what of it no table has."""
    from tuccl.commands import workload

    raise typer.Exit(workload.show(file, as_json))
