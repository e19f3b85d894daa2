"""The commands `tuccl workload import`, `show` and `record`, and the group of all of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tuccl.cli.command import HelpGroup, command
from tuccl.cli.workload_bench import bench
from tuccl.cli.workload_trim import trim
from tuccl.errors import ExitCode, TucclError, UsageError
from tuccl.options.option import AS_JSON, OUTPUT, OUTPUT_FILE, SCOPE, option

if TYPE_CHECKING:
    from tuccl.workloads.workload import Workload

app = typer.Typer(
    name="workload",
    cls=HelpGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Find out which collectives a job calls, and what a table gains it.",
)


@dataclass(frozen=True, kw_only=True)
class WorkloadImportOptions:
    """The options of `tuccl workload import`."""

    files: tuple[str, ...] = option(
        "",
        "Recordings of one job: NCCL's log, traces of PyTorch's profiler, NCCL Inspector's "
        "JSON, a CSV of calls; also as gzip. Or the directory of `tuccl workload record`.",
        "FILE...",
        positional=True,
    )
    output: Path = option(OUTPUT, "Write the workload there.", "W.json", names=OUTPUT_FILE)
    kind: str | None = option(
        SCOPE,
        "Kind of the recordings, if their content does not show it.",
        "nccl-log|kineto|inspector|csv|recorded",
        default=None,
        names=("--from",),
    )
    steps: float | None = option(
        SCOPE,
        "Steps that each rank's recording covers; else as the recording states.",
        "N",
        default=None,
        bounds=(1e-3, 1e12),
    )
    step_time: str | None = option(
        SCOPE,
        "Time of a step of the job without PyTorch's profiler, which slows its host; traces "
        "then show what steps without it wait for.",
        "TIME",
        default=None,
    )
    ranks_per_node: int | None = option(
        SCOPE,
        "Ranks on each node, for recordings that do not name hosts.",
        "N",
        default=None,
        bounds=(1, 1 << 20),
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl workload import nccl.*.log -o W.json",
    "tuccl workload import trace_rank*.json.gz --ranks-per-node 8 -o W.json",
    name="import",
)
def import_workload(options: WorkloadImportOptions) -> int:
    """Read the recordings of a job, count its calls and write the workload."""
    from tuccl.options.output_file import check_output
    from tuccl.quantities import parse_seconds
    from tuccl.views.terminal.display import print_lines
    from tuccl.views.terminal.json_output import print_document
    from tuccl.views.terminal.live_view import shown_progress
    from tuccl.views.terminal.workload_display import exposure_lines, summary_line, workload_figures
    from tuccl.workloads.recordings.importing import import_recordings
    from tuccl.workloads.recordings.recognition import parse_kind

    files = tuple(map(Path, options.files))
    check_output(options.output, "--output", files)
    kind = None if options.kind is None else parse_kind(options.kind)
    step_us = None
    if options.step_time is not None:
        step_us = parse_seconds(options.step_time, "--step-time") * 1e6
    with shown_progress() as progress:
        imported = import_recordings(
            files, kind, options.steps, progress,
            ranks_per_node=options.ranks_per_node, step_us=step_us,
        )  # fmt: skip
    workload = imported.workload
    _write(workload, imported.notes, options.output)
    if options.as_json:
        print_document(workload_figures(options.output, workload))
    else:
        written = f"{summary_line(workload)}, written to {options.output}"
        print_lines([written, *exposure_lines(workload)])
    return ExitCode.OK


def _write(workload: Workload, notes: Sequence[str], output: Path) -> None:
    """Write a workload, with notes on what it lacks."""
    from tuccl.views.terminal.display import say_notes
    from tuccl.workloads.workload_file import write_workload

    write_workload(output, workload)
    say_notes((*notes, *(f"left out: {what}" for what in workload.source.left_out)))


@dataclass(frozen=True)
class WorkloadShowOptions:
    """The options of `tuccl workload show`."""

    file: Path = option(
        "", "A workload, as `tuccl workload import` writes it.", "W.json", positional=True
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl workload show W.json")
def show(options: WorkloadShowOptions) -> int:
    """Show a workload's calls and bytes per step, and what of it no table has."""
    from tuccl.views.terminal.json_output import print_either
    from tuccl.views.terminal.workload_display import print_workload, workload_figures
    from tuccl.workloads.workload_file import read_workload

    figures = workload_figures(options.file, read_workload(options.file))
    print_either(figures, options.as_json, print_workload)
    return ExitCode.OK


@dataclass(frozen=True)
class WorkloadRecordOptions:
    """The options of `tuccl workload record`."""

    job: tuple[str, ...] = option(
        "", "The job: torchrun, mpirun, a script.", "CMD", default=(), positional=True
    )
    output: Path | None = option(
        OUTPUT, "Write the workload there.", "W.json", default=None, names=OUTPUT_FILE
    )
    steps: float | None = option(
        SCOPE,
        "Steps that the job makes: figures become those of one step.",
        "N",
        default=None,
        bounds=(1e-6, 1e12),
    )
    variables: Path | None = option(
        OUTPUT,
        "Run nothing: print the variables that have a job record into this directory.",
        "DIR",
        default=None,
        names=("--env",),
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl workload record -o W.json --steps 100 -- torchrun --nproc-per-node 8 train.py",
    'eval "$(tuccl workload record --env /shared/recording)"; srun train.sh',
    takes_job=True,
)
def record(options: WorkloadRecordOptions) -> int:
    """Run a job, count the calls that NCCL reports, and write the workload.

    Exit code: the job's own, and 1 if that is 0 and nothing was recorded.
    """
    from tuccl.crew.job_process import run_job
    from tuccl.options.output_file import check_output
    from tuccl.views.terminal.display import say
    from tuccl.workloads.job_recording import (
        PROFILER_VARIABLE,
        RECORD_VARIABLE,
        job_environment,
        recording_directory,
    )
    from tuccl.workloads.recordings.recorded import RECORDED_FILES
    from tuccl.workspace.atomic_file import absolute, require_writable

    if options.variables is not None:
        return _print_variables(options, options.variables)
    if not options.job or options.output is None:
        raise UsageError("name the job and its workload: tuccl workload record -o W.json -- CMD")
    check_output(options.output, "--output")
    require_writable(options.output)
    with recording_directory(absolute(options.output)) as directory:
        environment = job_environment(os.environ, directory)
        if environment.lost_executor:
            say("the job runs without TuCCL's executor: NCCL does not report the calls it takes")
        code = run_job(options.job, environment.variables)
        files = sorted(directory.glob(RECORDED_FILES))
        if not files:
            say(
                "tuccl: nothing was recorded: no process of the job that runs NCCL 2.23 or later "
                f"had {PROFILER_VARIABLE} and {RECORD_VARIABLE}, and {directory.parent} on its host"
            )
            return code or ExitCode.FINDING
        try:
            _write_recorded(options, files, options.output)
        except TucclError:
            say(f"{directory} keeps what was recorded")
            raise
        return code


def _print_variables(options: WorkloadRecordOptions, directory: Path) -> int:
    from tuccl.views.terminal.display import print_lines, say
    from tuccl.workloads.job_recording import recording_variables
    from tuccl.workspace.atomic_file import absolute, cannot_write

    if options.job or options.output is not None or options.as_json:
        raise UsageError("--env prints lines for a shell: give it neither a job nor -o nor --json")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error
    variables = recording_variables(absolute(directory))
    print_lines(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    say(f"after the job: tuccl workload import {shlex.quote(str(directory))} -o W.json")
    return ExitCode.OK


def _write_recorded(options: WorkloadRecordOptions, files: Sequence[Path], output: Path) -> None:
    from tuccl.views.terminal.display import say
    from tuccl.views.terminal.json_output import print_document
    from tuccl.views.terminal.live_view import shown_progress
    from tuccl.views.terminal.workload_display import summary_line, workload_figures
    from tuccl.workloads.recordings.importing import import_recordings
    from tuccl.workloads.workload import SourceKind

    with shown_progress() as progress:
        imported = import_recordings(files, SourceKind.RECORDED, options.steps, progress)
    # The processes' files are removed.
    source = replace(imported.workload.source, files=())
    workload = replace(imported.workload, source=source)
    _write(workload, imported.notes, output)
    if options.as_json:
        print_document(workload_figures(output, workload))
    else:
        say(f"{summary_line(workload)}, written to {output}")


for each in (import_workload, show, record, bench, trim):
    each.add_to(app)
