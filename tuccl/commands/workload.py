"""The commands `tuccl workload import` and `show`."""

from __future__ import annotations

from pathlib import Path

from tuccl.console.display import print_lines, say_notes
from tuccl.console.json_output import print_document
from tuccl.console.progress import shown_progress
from tuccl.console.workload_display import print_workload, summary_line, workload_report
from tuccl.errors import ExitCode
from tuccl.inputs.option import require_bounds
from tuccl.inputs.output_file import check_output
from tuccl.inputs.workload_command import WorkloadImportCommand
from tuccl.workloads.recordings.importing import import_recordings
from tuccl.workloads.recordings.recognition import parse_kind
from tuccl.workloads.workload_file import read_workload, write_workload


def import_workload(command: WorkloadImportCommand) -> int:
    """Run `tuccl workload import`."""
    require_bounds(command)
    files = tuple(map(Path, command.files))
    check_output(command.output, "--output", files)
    kind = None if command.kind is None else parse_kind(command.kind)
    with shown_progress() as progress:
        imported = import_recordings(
            files, kind, command.steps, progress, ranks_per_node=command.ranks_per_node
        )
    workload = imported.workload
    write_workload(command.output, workload)
    say_notes((*imported.notes, *(f"left out: {what}" for what in workload.source.left_out)))
    if command.as_json:
        print_document(workload_report(command.output, workload))
    else:
        print_lines([f"{summary_line(workload)}, written to {command.output}"])
    return ExitCode.OK


def show(file: Path, as_json: bool) -> int:
    """Run `tuccl workload show`."""
    workload = read_workload(file)
    if as_json:
        print_document(workload_report(file, workload))
    else:
        print_workload(workload)
    return ExitCode.OK
