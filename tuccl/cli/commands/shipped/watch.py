"""The command `tuccl watch`: is this host still the one that a shipped table was tuned for."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.cli.options.watch_command import ServiceFile, WatchCommand
from tuccl.errors import ExitCode, UsageError
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.options.output_file import check_output
from tuccl.quantities import parse_seconds
from tuccl.reports.host_record import has_models, record_host
from tuccl.shipping.manifest import MANIFEST_NAME, with_host
from tuccl.shipping.shipped_directory import held
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.watching.metrics import watch_metrics
from tuccl.shipping.watching.service_files import service_file, slurm_health_check, timer_file
from tuccl.shipping.watching.watch import WatchOptions, WatchResult
from tuccl.shipping.watching.watch import watch as look
from tuccl.views.terminal import display
from tuccl.views.terminal.display import print_lines
from tuccl.views.terminal.findings_display import watch_lines
from tuccl.views.terminal.json_output import print_document
from tuccl.workspace.atomic_file import absolute, write_atomically


def watch(command: WatchCommand) -> int:
    """Run `tuccl watch DIR`.

    Raises:
        UsageError: The directory is none of `tuccl ship`, or options contradict each other.
        WorkspaceError: The textfile cannot be written.
    """
    directory = absolute(command.directory)
    if command.print_file is not None:
        _print(command.print_file, directory)
        return ExitCode.OK
    if command.textfile is not None:
        _check_textfile(command.textfile, directory)
    if command.accept:
        return _accept(command, directory)
    limit_s = parse_seconds(command.limit, "--limit")
    named = {} if command.nccl is None else {LIBRARY_VARIABLE: str(absolute(command.nccl))}
    options = WatchOptions(not command.no_measure, limit_s, {**os.environ, **named})
    found = look(directory, options)
    if command.textfile is not None:
        write_atomically(absolute(command.textfile), watch_metrics(found))
    if command.as_json:
        print_document(found)
    else:
        print_lines(watch_lines(found, verbose=command.verbose))
    return _exit_code(found)


def _accept(command: WatchCommand, directory: Path) -> int:
    """Write this host into the manifest, and tell what changed since the one before.

    Raises:
        UsageError: This host has no GPUs of the table's machine, or the manifest is of another
            release.
        WorkspaceError: The manifest cannot be written.
    """
    found = look(directory, WatchOptions(measure=False))
    record, models = record_host(), view_shipped(directory).bundle.gpu_models
    if record is None or (models and not has_models(record, models)):
        raise UsageError(
            f"--accept: no GPU of {', '.join(models)} is seen here; accept on a host of the machine"
        )
    path = directory / MANIFEST_NAME
    with held(directory):
        write_atomically(path, with_host(path, record))
    if command.as_json:
        print_document(found)
    else:
        print_lines(watch_lines(found, verbose=command.verbose))
        display.say(f"{path} has this host as it is now")
    return ExitCode.OK


def _exit_code(found: WatchResult) -> int:
    if found.changes:
        return ExitCode.FINDING
    return ExitCode.ENVIRONMENT if found.unchecked else ExitCode.OK


def _check_textfile(path: Path, directory: Path) -> None:
    """Require a name that node_exporter reads, of no file of the table.

    Raises:
        UsageError: It ends otherwise, or is one.
    """
    check_output(path, "--textfile", directory.glob("*"))
    if path.suffix != ".prom":
        raise UsageError(f"--textfile {path}: node_exporter reads files that end in .prom")
    if path.exists() and not path.is_file():
        raise UsageError(f"--textfile {path} is no regular file: name another")


def _print(file: ServiceFile, directory: Path) -> None:
    match file:
        case ServiceFile.SERVICE:
            text = service_file(directory)
        case ServiceFile.TIMER:
            text = timer_file()
        case ServiceFile.SLURM:
            text = slurm_health_check(directory)
    print(text, end="")  # noqa: T201 - the command's result
