"""The commands `tuccl workload import`, `show` and `record`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import Command, Group, examples
from tuccl.cli.parameters.options import JsonOption
from tuccl.inputs.workload_command import WorkloadImportCommand
from tuccl.inputs.workload_record_command import WorkloadRecordCommand

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


@app.command(
    cls=Command,
    # The job's own options are none of this command's, also without --.
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "tuccl workload record -o W.json --steps 100 -- torchrun --nproc-per-node 8 train.py",
        'eval "$(tuccl workload record --env /shared/recording)"; srun train.sh',
    ),
)
@with_fields()
def record(command: WorkloadRecordCommand, as_json: JsonOption = False) -> None:
    """Run a job, count its calls as NCCL tells of them, and write the workload.

    Exit code: the job's own, and 1 if that is 0 and nothing was recorded.
    """
    from tuccl.commands import workload

    raise typer.Exit(workload.record(replace(command, as_json=as_json)))
