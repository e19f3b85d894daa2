"""The command `tuccl bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.help import LABORATORY, MACHINE, MEASURING, SCOPE, examples
from tuccl.cli.options import InPlaceOption, JsonOption, WorkspaceOption, named_path
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

EXAMPLES = examples(
    "tuccl bench",
    "tuccl bench /shared/tuccl --ops all_reduce --sizes 64K,1M,16M --rounds 7",
    "tuccl bench /shared/tuccl /shared/tuccl-new --budget 10m",
)


def bench(
    place: Annotated[
        Path | None,
        typer.Argument(
            metavar="PLACE",
            parser=named_path,
            help="A directory of `tuccl ship`, or a workspace; else that of --workspace.",
        ),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="OTHER",
            parser=named_path,
            help="A second one, to hold against stock NCCL and against the first.",
        ),
    ] = None,
    operations: Annotated[
        str | None,
        typer.Option(
            "--ops",
            metavar="OP,...",
            help="As nccl-tests names them; the table's if not given.",
            rich_help_panel=SCOPE,
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE,...",
            help="As 64K,1M,1G; the table's if not given.",
            rich_help_panel=SCOPE,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Starts of each, in turn; 5 if neither this nor a budget is given.",
            show_default=False,
            rich_help_panel=MEASURING,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Of the machine, as 90s, 10m: as many rounds as fit, two at least.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    plain: Annotated[
        bool | None,
        typer.Option(
            "--plain/--graphs",
            help="Time calls one by one, or replay them from CUDA graphs; if not given, as a "
            "workspace's table was tuned, else graphs.",
            show_default=False,
            rich_help_panel=MEASURING,
        ),
    ] = None,
    in_place: InPlaceOption = False,
    no_executor: Annotated[
        bool,
        typer.Option(
            "--no-executor",
            help="NCCL with the plugin alone, also where the table loads the executor.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    nccl: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The libnccl.so.2 to load; else the one that is found.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The first N of this host; else all.", rich_help_panel=MACHINE
        ),
    ] = None,
    fake_nodes: Annotated[
        int,
        typer.Option(
            "--fake-nodes",
            metavar="N",
            help="As how many nodes this host's GPUs are to appear.",
            rich_help_panel=LABORATORY,
        ),
    ] = 1,
    share_gpus: Annotated[
        bool,
        typer.Option(
            "--share-gpus",
            help="Each faked node has all of these GPUs, through MPS.",
            rich_help_panel=LABORATORY,
        ),
    ] = False,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Measure a table against stock NCCL here and now, in new processes as jobs have them.

    Exit code 1: a key is slower than stock NCCL, or than the table promised, beyond the noise.
    """
    from tuccl.commands import bench as benching

    command = benching.BenchCommand(
        place=place,
        other=other,
        workspace=workspace,
        operations=operations,
        sizes=sizes,
        rounds=rounds,
        budget=budget,
        plain=plain,
        in_place=in_place,
        executor=not no_executor,
        gpus=gpus,
        fake_nodes=fake_nodes,
        share_gpus=share_gpus,
        nccl=nccl,
        as_json=as_json,
    )
    raise typer.Exit(benching.bench(command))
