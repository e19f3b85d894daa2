"""The commands `tuccl workload import`, `show`, `record`, `bench` and `trim`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.options.workload_command import WorkloadImportCommand
from tuccl.cli.options.workload_record_command import WorkloadRecordCommand
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import Command, Group, examples
from tuccl.cli.parameters.options import JsonOption, WorkspaceOption
from tuccl.options.workload_bench_command import WorkloadBenchCommand, WorkloadTrimCommand
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

app = typer.Typer(
    name="workload",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    help="Find out which collectives a job calls, and what a table gains it.",
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
    from tuccl.cli.commands import workload

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
    from tuccl.cli.commands import workload

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
    from tuccl.cli.commands import workload

    raise typer.Exit(workload.record(replace(command, as_json=as_json)))


@app.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "tuccl workload bench --table /shared/tuccl -- torchrun --nproc-per-node 8 train.py",
        "tuccl workload bench --metric 'step time (\\S+) ms' --unit ms --skip 20 -- srun train.sh",
    ),
)
@with_fields()
def bench(
    command: WorkloadBenchCommand,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Run a job without and with a table, in turn, and compare its own figure.

    Exit code 1: the job is slower with the table, beyond the noise.
    """
    from tuccl.cli.commands import job_bench

    raise typer.Exit(job_bench.bench_job(replace(command, workspace=workspace, as_json=as_json)))


@app.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "tuccl workload trim --table T --output DIR --metric 'step (\\S+) ms' -- srun job.sh",
    ),
)
@with_fields(
    helps={
        "rounds": "Runs of what is left and of stock NCCL each, in turn.",
        "unit": "Unit of a figure that is the time of a step.",
    }
)
def trim(
    command: WorkloadTrimCommand,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Run a job with parts of a table, and leave out what slows it down.

    Exit code 1: nothing is left, or the job is slower with what is, beyond the noise; nothing is
    shipped.
    """
    from tuccl.cli.commands import job_trim

    raise typer.Exit(job_trim.trim_job(replace(command, workspace=workspace, as_json=as_json)))
