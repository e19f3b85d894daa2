"""The commands `tuccl topology show`, `diff`, `import`, `export` and `draw`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.parameters.help import Command, Group, examples
from tuccl.cli.parameters.options import JsonOption
from tuccl.options.option import OUTPUT

app = typer.Typer(
    name="topology",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    help="Look at, compare, convert and draw descriptions of machines.",
)

FILE_HELP = (
    "TuCCL's JSON, NCCL's or hwloc's XML, a tar of /sys, the output of lspci -vvv or "
    "nvidia-smi topo -m; or shipped:NAME, FILE.json#name of many, or a topology file of TACCL's."
)
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help=FILE_HELP)]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File to write; - or none: standard output.",
        rich_help_panel=OUTPUT,
    ),
]


@app.command(cls=Command, epilog=examples("tuccl topology show topo.xml"))
def show(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help=f"{FILE_HELP} Without it: what is shipped.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Show a machine as a tree, every figure with its source."""
    from tuccl.cli.commands import topology

    raise typer.Exit(topology.show(file, as_json))


@app.command(cls=Command, epilog=examples("tuccl topology diff before.json after.json"))
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help=FILE_HELP)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="As OLD.")],
    figures: Annotated[
        bool, typer.Option("--figures", help="Also list figures that differ within their class.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the differences between two descriptions of a machine. Exit code 1: there are some."""
    from tuccl.cli.commands import topology

    raise typer.Exit(topology.diff(old, new, figures, as_json))


@app.command(
    "import", cls=Command, epilog=examples("tuccl topology import topo.xml -o machine.json")
)
def import_machine(
    file: FileArgument, output: OutputOption = None, as_json: JsonOption = False
) -> None:
    """Read a machine from any form and write it in TuCCL's JSON."""
    from tuccl.cli.commands import topology

    raise typer.Exit(topology.import_machine(file, output, as_json))


@app.command(cls=Command, epilog=examples("tuccl topology export machine.json -o topo.xml"))
def export(
    file: FileArgument,
    output: OutputOption = None,
    host: Annotated[
        str,
        typer.Option(metavar="HOST", help="Which one of a cluster, by number from 0 or by name."),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a machine as NCCL's XML (NCCL_TOPO_FILE), and note what that form cannot express."""
    from tuccl.cli.commands import topology

    raise typer.Exit(topology.export(file, output, host, as_json))


@app.command(cls=Command, epilog=examples("tuccl topology draw topo.xml -o machine.svg"))
def draw(file: FileArgument, output: OutputOption = None, as_json: JsonOption = False) -> None:
    """Draw devices and links as an SVG picture."""
    from tuccl.cli.commands import topology

    raise typer.Exit(topology.draw(file, output, as_json))
