"""The command line: `tuccl init`, `table`, `explain`, `ship`, `retune`, `verify`.

Data goes to standard output, everything else to standard error. Every command takes `--json`. Exit
codes are those of `tuccl.errors.ExitCode`. What a command needs is imported when it runs, so that
`tuccl --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from tuccl import __version__
from tuccl.errors import ExitCode, TucclError

app = typer.Typer(
    name="tuccl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tune GPU collective communication for this cluster and ship the result to NCCL.",
)

Arguments = ParamSpec("Arguments")

WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", help="Directory that holds the run.", show_default=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
DEFAULT_WORKSPACE = Path("tuccl-workspace")


def reporting_errors(command: Callable[Arguments, int]) -> Callable[Arguments, None]:
    """Turn known errors into one line on standard error and a documented exit code."""

    @wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        code: int
        try:
            code = command(*args, **kwargs)
        except KeyboardInterrupt:
            _complain("interrupted; the same command continues")
            code = ExitCode.INTERRUPTED
        except BrokenPipeError:
            sys.stderr.close()
            code = ExitCode.OK
        except TucclError as error:
            _complain(str(error))
            code = error.exit_code
        except OSError as error:
            _complain(f"{error.filename or 'the system'}: {error.strerror}; check it and try again")
            code = ExitCode.ENVIRONMENT
        except _package_errors() as error:
            _complain(str(error))
            code = ExitCode.BAD_INPUT
        raise typer.Exit(code)

    return run


def _complain(text: str) -> None:
    sys.stderr.write(f"tuccl: {' '.join(text.split())}\n")


def _package_errors() -> tuple[type[Exception], ...]:
    """Roots of the errors of the other packages."""
    from lookup_tables.errors import TableError
    from probes.errors import ProbeError
    from sketches.errors import SketchError
    from synthesizer.errors import SynthesisError
    from tuccl.runtime import PluginMissingError

    return (ProbeError, SketchError, SynthesisError, TableError, PluginMissingError)


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


@app.command()
@reporting_errors
def init(
    topology: Annotated[
        Path,
        typer.Option(help="NCCL topology XML (NCCL_TOPO_DUMP_FILE) or TuCCL topology JSON."),
    ],
    nodes: Annotated[int, typer.Option(help="Machines like it, joined by a network.")] = 1,
    network_gbps: Annotated[
        float | None, typer.Option(help="Gbit/s of every network link; the NIC's own if not given.")
    ] = None,
    network_latency_us: Annotated[float, typer.Option(help="From NIC to NIC, in us.")] = 2.0,
    network_layout: Annotated[
        str, typer.Option(help="rails: NIC i of every node on one switch; fabric: all on one.")
    ] = "rails",
    operations: Annotated[
        str, typer.Option(help="Comma-separated, as nccl-tests names them.")
    ] = "all_reduce,all_gather,reduce_scatter",
    min_size: Annotated[str, typer.Option(help="Smallest size, as 1K.")] = "1K",
    max_size: Annotated[str, typer.Option(help="Largest size, as 1G.")] = "1G",
    step: Annotated[int, typer.Option(help="Factor from one size to the next.")] = 4,
    backend: Annotated[str, typer.Option(help="What measures.")] = "simulated",
    seed: Annotated[int, typer.Option(help="Of search and simulated noise.")] = 0,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> int:
    """Do everything: sketches, schedules, search, table and bundle. Run again, it continues."""
    from tuccl import commands

    options = {
        "topology": str(topology.resolve()),
        "nodes": nodes,
        "network_gbps": network_gbps,
        "network_latency_us": network_latency_us,
        "network_layout": network_layout,
        "operations": operations,
        "min_size": min_size,
        "max_size": max_size,
        "step": step,
        "backend": backend,
        "seed": seed,
    }
    return commands.init(options, workspace, as_json)


@app.command()
@reporting_errors
def table(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> int:
    """Show the tuned table against the default."""
    from tuccl import commands

    return commands.show_table(workspace, as_json)


@app.command()
@reporting_errors
def explain(
    operation: Annotated[str, typer.Argument(help="As nccl-tests names it.")],
    size: Annotated[str, typer.Argument(help="As 64K, 1M, 1G.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> int:
    """Tell which entry applies to an operation and size, and why. Exit code 1: none does."""
    from tuccl import commands

    return commands.explain(operation, size, workspace, as_json)


@app.command()
@reporting_errors
def ship(
    directory: Annotated[Path, typer.Argument(help="Where the job finds it.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> int:
    """Write bundle, plugin and a tuccl.env that a job sources."""
    from tuccl import commands

    return commands.ship(directory, workspace, as_json)


@app.command()
@reporting_errors
def retune(
    topology: Annotated[
        Path | None, typer.Option(help="The machine now; the run's own file if not given.")
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> int:
    """Look at the machine again; if it changed, say how, keep the old table and tune again."""
    from tuccl import commands

    return commands.retune(topology, workspace, as_json)


@app.command()
@reporting_errors
def verify(
    file: Annotated[Path, typer.Argument(help="MSCCL XML.")],
    as_json: JsonOption = False,
) -> int:
    """Prove a schedule right. Exit code 0: proved; 1: the defect is named."""
    from tuccl import commands

    return commands.verify(file, as_json)


def main() -> None:
    """Entry point of the `tuccl` command."""
    app()
