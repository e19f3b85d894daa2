"""The command `tuccl watch`: whether this host is still the one that a table was tuned for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import (
    AS_JSON,
    MEASURING,
    OUTPUT,
    SHIPPED_DIRECTORY,
    named_path,
    option,
)

if TYPE_CHECKING:
    from tuccl.shipping.watching.watch import WatchResult


class ServiceFile(StrEnum):
    """A file that has a host watched."""

    SERVICE = "service"
    """A systemd service, which runs one watch."""
    TIMER = "timer"
    """The systemd timer that starts it."""
    SLURM = "slurm"
    """A HealthCheckProgram for slurm.conf."""


@dataclass(frozen=True)
class WatchArguments:
    """The options of `tuccl watch`."""

    directory: Path = field(metadata=SHIPPED_DIRECTORY)
    no_measure: bool = option(MEASURING, "Measure nothing: no process uses a GPU.", default=False)
    limit: str = option(
        MEASURING,
        "Time limit of the measurement; a suspicion is measured once more.",
        "TIME",
        default="3s",
    )
    nccl: Path | None = option(
        MEASURING, "The libnccl.so.2 to load; else the one that is found.", "PATH", default=None
    )
    accept: bool = option(
        OUTPUT,
        "Measure nothing, and take this host as it is now for what later watches compare.",
        default=False,
    )
    verbose: bool = option(
        OUTPUT,
        "Print what is as it was, too, and what was measured.",
        default=False,
        names=("--verbose", "-v"),
    )
    textfile: Path | None = option(
        OUTPUT,
        "Write metrics for the textfile collector of Prometheus' node_exporter.",
        "FILE.prom",
        default=None,
        parse=named_path,
    )
    print_file: ServiceFile | None = option(
        OUTPUT,
        "Check nothing; print a systemd service, its timer, or Slurm's HealthCheckProgram.",
        "service|timer|slurm",
        default=None,
        names=("--print",),
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl watch /shared/tuccl",
    "tuccl watch /shared/tuccl --no-measure --textfile /var/lib/node_exporter/tuccl.prom",
    "tuccl watch /shared/tuccl --print slurm",
)
def watch(options: WatchArguments) -> int:
    """Check in seconds whether this host is still the one that the table was tuned for.

    Nothing is printed if nothing changed. Exit code 1: it changed, each change is named; 3: a check
    could not be made.
    """
    from tuccl.workspace.atomic_file import absolute

    directory = absolute(options.directory)
    if options.print_file is not None:
        _print_file(options.print_file, directory)
        return ExitCode.OK
    if options.textfile is not None:
        _check_textfile(options.textfile, directory)
    if options.accept:
        _accept(options, directory)
        return ExitCode.OK
    found = _watch(options, directory)
    _print(found, options)
    if found.changes:
        return ExitCode.FINDING
    return ExitCode.ENVIRONMENT if found.unchecked else ExitCode.OK


def _watch(options: WatchArguments, directory: Path) -> WatchResult:
    """Have the jobs start, import what the rest needs meanwhile, and return the result."""
    from contextlib import closing

    from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
    from tuccl.quantities import parse_seconds
    from tuccl.shipping.watching.head_start import begin_watch
    from tuccl.workspace.atomic_file import absolute, write_atomically

    limit_s, measures = parse_seconds(options.limit, "--limit"), not options.no_measure
    named = {} if options.nccl is None else {LIBRARY_VARIABLE: str(absolute(options.nccl))}
    environment = {**os.environ, **named}
    with closing(begin_watch(directory, environment, measures=measures)) as begun:
        from tuccl.shipping.watching import watch as watching

        how = watching.WatchOptions(measures, limit_s, environment)
        found = watching.watch(directory, how, begun)
    if options.textfile is not None:
        from tuccl.shipping.watching.metrics import watch_metrics

        write_atomically(absolute(options.textfile), watch_metrics(found))
    return found


def _print(found: WatchResult, options: WatchArguments) -> None:
    from tuccl.views.terminal.display import print_lines
    from tuccl.views.terminal.findings_display import watch_lines
    from tuccl.views.terminal.json_output import print_document

    if options.as_json:
        print_document(found)
    else:
        print_lines(watch_lines(found, verbose=options.verbose))


def _accept(options: WatchArguments, directory: Path) -> None:
    """Write this host into the manifest, and report what changed since the one before.

    Raises:
        UsageError: This host has no GPUs of the table's machine, or the manifest is of another
            release.
        WorkspaceError: The manifest cannot be written.
    """
    from tuccl.reports.host_record import has_models, record_host
    from tuccl.shipping.manifest import MANIFEST_NAME, manifest_text, read_manifest
    from tuccl.shipping.shipped_directory import held
    from tuccl.shipping.shipped_view import view_shipped
    from tuccl.shipping.watching import watch as watching
    from tuccl.views.terminal.display import say
    from tuccl.workspace.atomic_file import write_atomically

    found = watching.watch(directory, watching.WatchOptions(measure=False))
    record, models = record_host(), view_shipped(directory).bundle.gpu_models
    if record is None or (models and not has_models(record, models)):
        raise UsageError(
            f"--accept: no GPU of {', '.join(models)} is seen here; accept on a host of the machine"
        )
    path = directory / MANIFEST_NAME
    with held(directory):
        manifest = read_manifest(directory)
        if manifest is None:
            raise UsageError(
                f"{path} is missing, damaged or of another release; `tuccl ship` there again"
            )
        write_atomically(path, manifest_text(manifest.model_copy(update={"host": record})))
    _print(found, options)
    if not options.as_json:
        say(f"{path} has this host as it is now")


def _check_textfile(path: Path, directory: Path) -> None:
    """Require a name that node_exporter reads, of no file of the table.

    Raises:
        UsageError: It ends otherwise, or is one.
    """
    from tuccl.options.output_file import check_output

    check_output(path, "--textfile", directory.glob("*"))
    if path.suffix != ".prom":
        raise UsageError(f"--textfile {path}: node_exporter reads files that end in .prom")
    if path.exists() and not path.is_file():
        raise UsageError(f"--textfile {path} is not a regular file: name another")


def _print_file(file: ServiceFile, directory: Path) -> None:
    from tuccl.shipping.watching.service_files import service_file, slurm_health_check, timer_file

    match file:
        case ServiceFile.SERVICE:
            text = service_file(directory)
        case ServiceFile.TIMER:
            text = timer_file()
        case ServiceFile.SLURM:
            text = slurm_health_check(directory)
    print(text, end="")
