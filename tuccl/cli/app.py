"""The command line: `tuccl init`, `table`, `ship`, `probe`, `topology` and the other commands.

Data goes to standard output, everything else to standard error. Every command takes `--json`. Exit
codes are those of `tuccl.errors.ExitCode`, and every error is one line. A command is a module
beside this one, which imports what it needs when it runs, so that `tuccl --help` answers at once.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated

import typer

from tuccl import __version__
from tuccl.cli.bench import bench
from tuccl.cli.build_executor import build_executor
from tuccl.cli.calibrate import calibrate
from tuccl.cli.command import HelpGroup
from tuccl.cli.diff import diff
from tuccl.cli.doctor import doctor
from tuccl.cli.explain import explain
from tuccl.cli.export import export
from tuccl.cli.history import history
from tuccl.cli.init import init
from tuccl.cli.learned import app as learned_app
from tuccl.cli.probe import probe
from tuccl.cli.report import report
from tuccl.cli.retune import retune
from tuccl.cli.rollback import rollback
from tuccl.cli.runs import runs
from tuccl.cli.ship import ship
from tuccl.cli.show import show
from tuccl.cli.synthesize import synthesize
from tuccl.cli.table import table
from tuccl.cli.topology import app as topology_app
from tuccl.cli.tune import tune
from tuccl.cli.verify import verify
from tuccl.cli.watch import watch
from tuccl.cli.workload import app as workload_app
from tuccl.crew.interrupts import interrupts_kept, leave_the_word, tell_stopped
from tuccl.crew.started_rank import is_first_on_host, is_rank_0
from tuccl.errors import ExitCode, TucclError, UsageError, exit_code_of

app = typer.Typer(
    name="tuccl",
    cls=HelpGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tune GPU collective communication for this cluster and ship the result to NCCL.",
)

_LOOK = "Look at machines and tables"
_COMMANDS = {
    "Tune and ship": (
        init, retune, ship, export, rollback, tune, calibrate, build_executor,
    ),
    _LOOK: (table, runs, explain, history, diff, show, doctor, watch, bench, probe, report),
    "Schedules": (verify, synthesize),
}  # fmt: skip
"""Commands by the panel of `tuccl --help`."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, quota or file."""


def _complain(text: str) -> None:
    sys.stderr.write(f"tuccl: {' '.join(text.split())}\n")


def _exit_code_of(error: Exception) -> int:
    """Print a known error and return its documented exit code; raise an unknown one again.

    All ranks of a job have one command line: rank 0 alone says what is wrong in it. If nobody ends
    the others then, theirs is another one, and the first of a host says it.
    """
    if isinstance(error, OSError):
        # Errors name the user's files, but not standard output or temporary files.
        full = error.errno in _FULL
        nameless = "standard output or a temporary file" if full else "the system"
        _complain(f"{error.filename or nameless}: {error.strerror}; check it and try again")
        return ExitCode.ENVIRONMENT
    if isinstance(error, TucclError):
        code = exit_code_of(error)
        if not isinstance(error, UsageError) or _speaks(code):
            _complain(str(error))
        return code
    if hasattr(error, "format_message"):  # The command line parser's.
        if _speaks(ExitCode.BAD_INPUT):
            _complain(f"{error.format_message()} See `{_command_of(error)} --help`.")
        return ExitCode.BAD_INPUT
    raise error


def _speaks(code: int) -> bool:
    """Return whether this rank says what is wrong; if it is not rank 0, wait for rank 0's end."""
    if is_rank_0(os.environ):
        return True
    leave_the_word(code)
    return is_first_on_host(os.environ)


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


for _panel, _commands in _COMMANDS.items():
    for _each in _commands:
        _each.add_to(app, _panel)
app.add_typer(learned_app, rich_help_panel=_LOOK)
app.add_typer(topology_app, rich_help_panel=_LOOK)
app.add_typer(workload_app, rich_help_panel=_LOOK)


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
