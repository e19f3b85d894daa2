"""The commands `tuccl ship`, `export`, `show` and `doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.parameters.fields import parser_of
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption, WorkspaceOption
from tuccl.options.option import NETWORK, OUTPUT, named_path
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

SHIP_EXAMPLES = examples(
    "tuccl ship /shared/tuccl",
    ". /shared/tuccl/tuccl.env",
    "tuccl ship /shared/tuccl --to slurm,enroot --at /opt/tuccl",
    "srun --mpi=pmix --ntasks-per-node=1 tuccl ship /shared/tuccl --check",
)
DOCTOR_EXAMPLES = examples(
    "tuccl doctor /shared/tuccl",
    ". /shared/tuccl/tuccl.env; tuccl doctor",
)
EXPORT_EXAMPLES = examples(
    "tuccl export --to tuner-csv -o nccl_tuner.conf",
    "tuccl export /shared/tuccl",
    "tuccl export --to thresholds --against own.csv",
)
SHOW_EXAMPLES = examples("tuccl show /shared/tuccl", "tuccl show /shared/tuccl --json")


def ship(
    directory: Annotated[
        Path,
        typer.Argument(help="Where the job finds it.", parser=parser_of(named_path), metavar="DIR"),
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Ship even beside files that are not its own, which stay, or over the table of "
            "another machine.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    forms: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORM,...",
            help="Forms beside tuccl.env: env, nccl-conf, slurm, enroot, kubernetes.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    place: Annotated[
        Path | None,
        typer.Option(
            "--at",
            metavar="PATH",
            help="Where jobs find the directory, if not at DIR.",
            parser=parser_of(named_path),
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing; tell whether jobs on this host, the hosts of an MPI job or "
            "--hosts would load what was shipped.",
            rich_help_panel=NETWORK,
        ),
    ] = False,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Hosts to check, as node[01-16],login.",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    launcher: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Command that starts another on a host; ssh if not given.",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = "",
    remote_python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Python on the hosts; the path of this one if not given.",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = "",
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Write bundle, plugin and a tuccl.env that a job sources; --to adds other forms of it.

    With --check exit code 1: jobs on these hosts would not all load one table.
    """
    from tuccl.cli.commands.shipped import ship as shipping
    from tuccl.errors import UsageError
    from tuccl.shipping.forms import parse_forms

    if check:
        if force or forms is not None or place is not None:
            raise UsageError("--check writes nothing: leave out --to, --at and --force")
        raise typer.Exit(shipping.check(directory, hosts, launcher, remote_python, as_json))
    if hosts or launcher or remote_python:
        raise UsageError("--hosts, --launcher and --remote-python are for --check: add it")
    named = () if forms is None else parse_forms(forms)
    raise typer.Exit(shipping.ship(directory, workspace, as_json, force, named, place))


def export(
    place: Annotated[
        Path | None,
        typer.Argument(
            help="A workspace, or a directory of `tuccl ship`; else that of --workspace.",
            parser=parser_of(named_path),
            metavar="PLACE",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORM",
            help="tuner-csv: for NCCL's example tuner. thresholds: up to which size a serving "
            "engine's own all_reduce is faster.",
            rich_help_panel=OUTPUT,
        ),
    ] = "tuner-csv",
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="TIMES.csv",
            help="The engine's own times, for --to thresholds: columns operation, size_bytes, "
            "ranks, us_per_call.",
            parser=parser_of(named_path),
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file, which replaces an earlier export; nccl_tuner.conf or "
            "all_reduce_thresholds.json if not given.",
            parser=parser_of(named_path),
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Write a table for jobs that cannot load the plugin, and tell what the form cannot say."""
    from tuccl.cli.commands.shipped import export as exporting

    raise typer.Exit(exporting.export(place, form, output, workspace, as_json, against))


def show(
    directory: Annotated[
        Path,
        typer.Argument(
            help="A directory of `tuccl ship`.", parser=parser_of(named_path), metavar="DIR"
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the table in a shipped directory. Exit code 1: its files do not fit together."""
    from tuccl.cli.commands.shipped import ship as shipping

    raise typer.Exit(shipping.show(directory, as_json))


def doctor(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="A directory of `tuccl ship`, as if its tuccl.env were sourced; else the "
            "environment is looked at as it is.",
            parser=parser_of(named_path),
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether a job that starts here would load its table. Exit code 1: it would not."""
    from tuccl.cli.commands.shipped import doctor as examining

    raise typer.Exit(examining.doctor(directory, as_json))
