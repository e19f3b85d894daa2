"""The commands `tuccl workload import`, `show` and `record`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuccl.cli.options.workload_command import WorkloadImportCommand
from tuccl.cli.options.workload_record_command import WorkloadRecordCommand
from tuccl.errors import ExitCode, TucclError, UsageError
from tuccl.options.option import require_bounds
from tuccl.options.output_file import check_output
from tuccl.processes.job_process import run_job
from tuccl.quantities import parse_seconds
from tuccl.views.terminal.display import print_lines, say, say_notes
from tuccl.views.terminal.json_output import print_document
from tuccl.views.terminal.progress import shown_progress
from tuccl.views.terminal.workload_display import (
    exposure_lines,
    print_workload,
    summary_line,
    workload_figures,
)
from tuccl.workloads.job_recording import (
    PROFILER_VARIABLE,
    RECORD_VARIABLE,
    job_environment,
    recording_directory,
    recording_variables,
)
from tuccl.workloads.recordings.importing import import_recordings
from tuccl.workloads.recordings.recognition import parse_kind
from tuccl.workloads.recordings.recorded import RECORDED_FILES
from tuccl.workloads.workload import SourceKind
from tuccl.workloads.workload_file import read_workload, write_workload
from tuccl.workspace.atomic_file import absolute, cannot_write, require_writable


def import_workload(command: WorkloadImportCommand) -> int:
    """Run `tuccl workload import`."""
    require_bounds(command)
    files = tuple(map(Path, command.files))
    check_output(command.output, "--output", files)
    kind = None if command.kind is None else parse_kind(command.kind)
    step_us = None
    if command.step_time is not None:
        step_us = parse_seconds(command.step_time, "--step-time") * 1e6
    with shown_progress() as progress:
        imported = import_recordings(
            files, kind, command.steps, progress,
            ranks_per_node=command.ranks_per_node, step_us=step_us,
        )  # fmt: skip
    workload = imported.workload
    write_workload(command.output, workload)
    say_notes((*imported.notes, *(f"left out: {what}" for what in workload.source.left_out)))
    if command.as_json:
        print_document(workload_figures(command.output, workload))
    else:
        written = f"{summary_line(workload)}, written to {command.output}"
        print_lines([written, *exposure_lines(workload)])
    return ExitCode.OK


def show(file: Path, as_json: bool) -> int:
    """Run `tuccl workload show`."""
    figures = workload_figures(file, read_workload(file))
    if as_json:
        print_document(figures)
    else:
        print_workload(figures)
    return ExitCode.OK


def record(command: WorkloadRecordCommand) -> int:
    """Run `tuccl workload record`; the exit code is the job's own."""
    require_bounds(command)
    if command.variables is not None:
        return _print_variables(command, command.variables)
    if not command.job or command.output is None:
        raise UsageError("name the job and its workload: tuccl workload record -o W.json -- CMD")
    check_output(command.output, "--output")
    require_writable(command.output)
    with recording_directory(absolute(command.output)) as directory:
        environment = job_environment(os.environ, directory)
        if environment.lost_executor:
            say("the job runs without TuCCL's executor: NCCL does not tell of calls that it takes")
        code = run_job(command.job, environment.variables)
        files = sorted(directory.glob(RECORDED_FILES))
        if not files:
            say(
                "tuccl: nothing was recorded: no process of the job that runs NCCL 2.23 or later "
                f"had {PROFILER_VARIABLE} and {RECORD_VARIABLE}, and {directory.parent} on its host"
            )
            return code or ExitCode.FINDING
        try:
            _write_recorded(command, files, command.output)
        except TucclError:
            say(f"{directory} keeps what was recorded")
            raise
        return code


def _print_variables(command: WorkloadRecordCommand, directory: Path) -> int:
    if command.job or command.output is not None or command.as_json:
        raise UsageError("--env prints lines for a shell: give it neither a job nor -o nor --json")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error
    variables = recording_variables(absolute(directory))
    print_lines(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    say(f"after the job: tuccl workload import {shlex.quote(str(directory))} -o W.json")
    return ExitCode.OK


def _write_recorded(command: WorkloadRecordCommand, files: Sequence[Path], output: Path) -> None:
    with shown_progress() as progress:
        imported = import_recordings(files, SourceKind.RECORDED, command.steps, progress)
    # The processes' files are removed.
    source = replace(imported.workload.source, files=())
    workload = replace(imported.workload, source=source)
    write_workload(output, workload)
    say_notes((*imported.notes, *(f"left out: {what}" for what in source.left_out)))
    if command.as_json:
        print_document(workload_figures(output, workload))
    else:
        say(f"{summary_line(workload)}, written to {output}")
