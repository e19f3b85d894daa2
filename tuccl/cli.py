"""The command line: `tuccl init`, `table`, `ship`, `probe`, `topology` and their neighbours.

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
from pydantic import JsonValue

from tuccl import __version__, cli_calibrate, cli_probe, cli_synthesize, cli_topology, cli_tune
from tuccl.cli_options import (
    DEFAULT_WORKSPACE,
    BackendOption,
    BudgetOption,
    CyclesOption,
    FloorOption,
    InPlaceOption,
    JsonOption,
    MaxSizeOption,
    MinSizeOption,
    ModelOption,
    NetworkGbpsOption,
    NetworkLatencyOption,
    NetworkLayoutOption,
    NodesOption,
    OperationsOption,
    PlainOption,
    RecordsOption,
    RecordToOption,
    SeedOption,
    StepOption,
    WeightsOption,
    WorkspaceOption,
    machine_option,
    named_path,
)
from tuccl.errors import ExitCode, TucclError
from tuccl.interrupts import interrupts_kept

app = typer.Typer(
    name="tuccl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tune GPU collective communication for this cluster and ship the result to NCCL.",
)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of places where no room is left."""


def _complain(text: str) -> None:
    sys.stderr.write(f"tuccl: {' '.join(text.split())}\n")


def _exit_code_of(error: Exception) -> int:
    """The documented exit code of a known error, after saying it; unknown errors pass through."""
    from lookup_tables.errors import TableError
    from probes.cluster.errors import HostsMissingError, MpiMissingError
    from probes.errors import ProbeError
    from sketches.errors import SketchError
    from synthesizer.errors import (
        AlgorithmFileError,
        ExportError,
        InfeasibleError,
        SynthesisError,
    )
    from tuccl.runtime import PluginMissingError

    if isinstance(error, OSError):
        # Files of the user's are named in their errors: results on their way out are not.
        full = error.errno in _FULL
        nameless = "standard output or a temporary file" if full else "the system"
        _complain(f"{error.filename or nameless}: {error.strerror}; check it and try again")
        return ExitCode.ENVIRONMENT
    if isinstance(error, TucclError):
        _complain(str(error))
        return error.exit_code
    for kind, code in (
        (HostsMissingError, ExitCode.FINDING),
        (MpiMissingError | PluginMissingError | TableError, ExitCode.ENVIRONMENT),
        (ProbeError | SketchError, ExitCode.BAD_INPUT),
        (AlgorithmFileError | ExportError | InfeasibleError, ExitCode.BAD_INPUT),
        (SynthesisError, ExitCode.ENVIRONMENT),
    ):
        if isinstance(error, kind):
            _complain(str(error))
            return code
    if hasattr(error, "format_message"):  # Of the command line parser.
        _complain(f"{error.format_message()} See `tuccl --help`.")
        return ExitCode.BAD_INPUT
    raise error


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
def init(
    topology: Annotated[
        str | None,
        machine_option(
            "A file (TuCCL's JSON, NCCL's XML, ...) or shipped:NAME; else this host, or MPI's "
            "hosts, are probed."
        ),
    ] = None,
    nodes: NodesOption = 1,
    fake_nodes: Annotated[
        bool, typer.Option("--fake-nodes", help="This host's GPUs are to appear as those nodes.")
    ] = False,
    share_gpus: Annotated[
        bool,
        typer.Option("--share-gpus", help="Each faked node has all of these GPUs, through MPS."),
    ] = False,
    network_gbps: NetworkGbpsOption = None,
    network_latency_us: NetworkLatencyOption = 2.0,
    network_layout: NetworkLayoutOption = "rails",
    operations: OperationsOption = None,
    min_size: MinSizeOption = None,
    max_size: MaxSizeOption = None,
    step: StepOption = None,
    backend: BackendOption = None,
    records: RecordsOption = None,
    model: ModelOption = None,
    record: RecordToOption = None,
    budget: BudgetOption = None,
    floor: FloorOption = None,
    weights: WeightsOption = None,
    plain: PlainOption = False,
    in_place: InPlaceOption = False,
    seed: SeedOption = 0,
    cycles: CyclesOption = 1,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Do everything: sketches, schedules, search, table and bundle. Run again, it continues."""
    from tuccl import tuning_commands

    options: dict[str, JsonValue] = {
        "topology": topology,
        "nodes": nodes,
        "fake_nodes": fake_nodes,
        "share_gpus": share_gpus,
        "network_gbps": network_gbps,
        "network_latency_us": network_latency_us,
        "network_layout": network_layout,
        "operations": operations,
        "min_size": min_size,
        "max_size": max_size,
        "step": step,
        "backend": backend,
        "records": records,
        "model": model,
        "budget": budget,
        "floor": floor,
        "weights": weights,
        "plain": plain,
        "in_place": in_place,
        "seed": seed,
        "cycles": cycles,
    }
    raise typer.Exit(tuning_commands.init(options, workspace, as_json, record))


@app.command()
def table(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Show the tuned table against the default."""
    from tuccl import table_commands

    raise typer.Exit(table_commands.show_table(workspace, as_json))


@app.command()
def explain(
    operation: Annotated[str, typer.Argument(help="As nccl-tests names it.")],
    size: Annotated[str, typer.Argument(help="As 64K, 1M, 1G.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Tell which entry applies to an operation and size, and why. Exit code 1: none does."""
    from tuccl import table_commands

    raise typer.Exit(table_commands.explain(operation, size, workspace, as_json))


@app.command()
def ship(
    directory: Annotated[
        Path,
        typer.Argument(help="Where the job finds it.", parser=named_path, metavar="DIRECTORY"),
    ],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Write bundle, plugin and a tuccl.env that a job sources."""
    from tuccl import table_commands

    raise typer.Exit(table_commands.ship(directory, workspace, as_json))


@app.command()
def retune(
    topology: Annotated[
        str | None,
        machine_option(
            "The machine now; else the run's own file is read again, or the hosts probed."
        ),
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Look at the machine again; if it changed, say how, keep the old table and tune again."""
    from tuccl import tuning_commands

    raise typer.Exit(tuning_commands.retune(topology, workspace, as_json))


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="MSCCL XML.", readable=False)],
    as_json: JsonOption = False,
) -> None:
    """Prove a schedule right. Exit code 0: proved; 1: the defect is named."""
    from tuccl import verifying

    raise typer.Exit(verifying.verify(file, as_json))


app.command()(cli_probe.probe)
app.command()(cli_synthesize.synthesize)
app.command()(cli_tune.tune)
app.command()(cli_calibrate.calibrate)
app.add_typer(cli_topology.app)


def main() -> None:
    """Entry point of the `tuccl` command."""
    try:
        with interrupts_kept():
            _prepare_streams()
            code = int(app(standalone_mode=False) or ExitCode.OK)
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The parser and rich leave by SystemExit when the reader of the result has gone. There is
        # no one to tell, but it was no success either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.ENVIRONMENT
    except Exception as error:  # noqa: BLE001 - unknown ones are raised again
        code = _exit_code_of(error)
    if code == ExitCode.INTERRUPTED:
        continues = sys.argv[1:2] in (["init"], ["tune"], ["retune"])
        remedy = "; the same command continues where it stopped" if continues else ""
        _complain(f"interrupted{remedy}")
    sys.exit(code)


def _prepare_streams() -> None:
    """Streams that are there, and that can say every file name."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
