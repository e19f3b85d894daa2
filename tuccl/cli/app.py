"""The command line: `tuccl init`, `table`, `ship`, `probe`, `topology` and the other commands.

Data goes to standard output, everything else to standard error. Every command takes `--json`. Exit
codes are those of `tuccl.errors.ExitCode`, and every error is one line. What a command needs is
imported when it runs, so that `tuccl --help` answers at once.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tuccl import __version__
from tuccl.cli import build, calibrate, probe, report, synthesize, tune
from tuccl.cli import topology as cli_topology
from tuccl.cli import workload as cli_workload
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import Command, Group, examples
from tuccl.cli.parameters.options import (
    ForceOption,
    JsonOption,
    PlainLogOption,
    RecordToOption,
    WorkspaceOption,
)
from tuccl.cli.shipped import bench, shipping, versions, watch
from tuccl.errors import ExitCode, TucclError, exit_code_of
from tuccl.options.option import MACHINE, OUTPUT, machine_name
from tuccl.options.run_options import RunOptions
from tuccl.processes.interrupts import interrupts_kept, tell_stopped
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

app = typer.Typer(
    name="tuccl",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tune GPU collective communication for this cluster and ship the result to NCCL.",
)

_TUNE = "Tune and ship"
_LOOK = "Look at machines and tables"
_SCHEDULES = "Schedules"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, quota or file."""


def _complain(text: str) -> None:
    sys.stderr.write(f"tuccl: {' '.join(text.split())}\n")


def _exit_code_of(error: Exception) -> int:
    """Print a known error and return its documented exit code; raise an unknown one again."""
    if isinstance(error, OSError):
        # Errors name the user's files, but not standard output or temporary files.
        full = error.errno in _FULL
        nameless = "standard output or a temporary file" if full else "the system"
        _complain(f"{error.filename or nameless}: {error.strerror}; check it and try again")
        return ExitCode.ENVIRONMENT
    if isinstance(error, TucclError):
        _complain(str(error))
        return exit_code_of(error)
    if hasattr(error, "format_message"):  # The command line parser's.
        _complain(f"{error.format_message()} See `{_command_of(error)} --help`.")
        return ExitCode.BAD_INPUT
    raise error


def _command_of(error: Exception) -> str:
    """Return the command whose arguments the parser refused: `tuccl init`."""
    context = getattr(error, "ctx", None)
    return "tuccl" if context is None else str(context.command_path)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tuccl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Tune GPU collective communication for this cluster and ship the result to NCCL."""


@app.command(
    cls=Command,
    rich_help_panel=_TUNE,
    epilog=examples(
        "tuccl init",
        "mpirun -np 16 tuccl init",
        "tuccl init --topology topo.xml --nodes 2 --network-gbps 200 --operations all_reduce",
    ),
)
@with_fields(without=["strategy"])
def init(
    options: RunOptions,
    record: RecordToOption = None,
    force: ForceOption = False,
    plain_log: PlainLogOption = False,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Tune a machine: probe it, make schedules, search, write table and bundle.

    Without --topology or --records this host is probed, or under MPI all hosts of the job, and
    measured where it has GPUs and an NCCL. Started again, the same command continues.
    """
    from tuccl.cli.commands import tune

    raise typer.Exit(tune.init(options, workspace, as_json, record, force, plain_log))


@app.command(
    cls=Command,
    rich_help_panel=_LOOK,
    epilog=examples("tuccl table", "tuccl table --shape node", "tuccl table --json"),
)
def table(
    shape: Annotated[
        str | None,
        typer.Option(metavar="SHAPE", help="Only communicators of this shape, as node."),
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Show what a job gets here against stock NCCL, key by key."""
    from tuccl.cli.commands import table as table_commands

    raise typer.Exit(table_commands.show_table(workspace, as_json, shape))


@app.command(
    cls=Command,
    rich_help_panel=_LOOK,
    epilog=examples(
        "tuccl explain all_reduce 4M", "tuccl explain all_gather 1M --ranks 8 --nodes 1"
    ),
)
def explain(
    operation: Annotated[
        str, typer.Argument(metavar="OP", help="As nccl-tests names it: all_reduce.")
    ],
    size: Annotated[str, typer.Argument(metavar="SIZE", help="As 64K, 1M, 1G.")],
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Ranks of the communicator; if not given, all GPUs of the machine."
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Nodes that they are on; if not given, one."),
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Show what a job here runs for a call, and why. Exit code 1: NCCL chooses."""
    from tuccl.cli.commands import table as table_commands

    raise typer.Exit(table_commands.explain(operation, size, workspace, as_json, ranks, nodes))


@app.command(
    cls=Command,
    rich_help_panel=_TUNE,
    epilog=examples("tuccl retune --dry-run", "tuccl retune", "tuccl retune --topology topo.xml"),
)
def retune(
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINE",
            parser=machine_name,
            help="The machine now; else the run's own file is read again, or the hosts probed.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    plain_log: PlainLogOption = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Measure no key; tell what would be measured again, and why.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    record: RecordToOption = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Look at the machine again; if it changed, say how, keep the old table and tune again.

    Entries whose communicators do not touch the change are kept, the others measured again.
    """
    from tuccl.cli.commands import tune

    raise typer.Exit(tune.retune(topology, workspace, as_json, plain_log, dry_run, record, force))


@app.command(cls=Command, rich_help_panel=_SCHEDULES, epilog=examples("tuccl verify schedule.xml"))
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="MSCCL XML.", readable=False)],
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Ranks of each node, as 4+4 or 3+1: also cut it into rounds on the network.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Prove a schedule right. Exit code 0: proved; 1: the defect is named."""
    from tuccl.cli.commands import verify as verifying

    raise typer.Exit(verifying.verify(file, nodes, as_json))


app.command(cls=Command, rich_help_panel=_TUNE, epilog=shipping.SHIP_EXAMPLES)(shipping.ship)
app.command(cls=Command, rich_help_panel=_TUNE, epilog=shipping.EXPORT_EXAMPLES)(shipping.export)
app.command(cls=Command, rich_help_panel=_TUNE, epilog=versions.ROLLBACK_EXAMPLES)(
    versions.rollback
)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=versions.HISTORY_EXAMPLES)(versions.history)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=versions.DIFF_EXAMPLES)(versions.diff)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=shipping.SHOW_EXAMPLES)(shipping.show)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=shipping.DOCTOR_EXAMPLES)(shipping.doctor)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=watch.EXAMPLES)(watch.watch)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=bench.EXAMPLES)(bench.bench)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=probe.EXAMPLES)(probe.probe)
app.command(cls=Command, rich_help_panel=_LOOK, epilog=report.EXAMPLES)(report.report)
app.command(cls=Command, rich_help_panel=_SCHEDULES, epilog=synthesize.EXAMPLES)(
    synthesize.synthesize
)
app.command(cls=Command, rich_help_panel=_TUNE, epilog=tune.EXAMPLES)(tune.tune)
app.command(cls=Command, rich_help_panel=_TUNE, epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command(cls=Command, rich_help_panel=_TUNE, epilog=build.EXAMPLES)(build.build_executor)
app.add_typer(cli_topology.app, rich_help_panel=_LOOK)
app.add_typer(cli_workload.app, rich_help_panel=_LOOK)


def main() -> None:
    """Entry point of the `tuccl` command."""
    try:
        with interrupts_kept(ends_process=True):
            _prepare_streams()
            code = int(app(standalone_mode=False, prog_name="tuccl") or ExitCode.OK)
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        code = exit_code_of(stop)
        tell_stopped(code)
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code == ExitCode.OK:
            raise  # The parser answered a shell's completion.
        # The parser and rich raise SystemExit when the reader of the result has gone. No message
        # can reach it, but the command has failed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.ENVIRONMENT
    except Exception as error:  # noqa: BLE001 - unknown ones are raised again
        code = _exit_code_of(error)
    sys.exit(code)


def _prepare_streams() -> None:
    """Make sure that both streams exist and can write every file name."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
