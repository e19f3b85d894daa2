"""The command `tuccl build-executor`."""

from __future__ import annotations

from typing import Annotated

import typer

from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption
from tuccl.options.option import OUTPUT

EXAMPLES = examples("tuccl build-executor", "tuccl build-executor --arch 80,90")


def build_executor(
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Compute capabilities to compile for, as 80,90; those of this machine's GPUs if "
            "not given.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Compile again what is there already.", rich_help_panel=OUTPUT
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compile the executor and the GPU benchmark with nvcc, for the GPUs here or those named."""
    from tuccl.cli.commands import build

    raise typer.Exit(build.build_executor(arch, force, as_json))
