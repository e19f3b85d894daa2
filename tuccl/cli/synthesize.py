"""The command `tuccl synthesize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.help import MACHINE, OUTPUT, SCOPE, SEARCH, examples
from tuccl.cli.options import (
    JsonOption,
    NetworkGbpsOption,
    NetworkLatencyOption,
    NetworkLayoutOption,
    NodesOption,
)

EXAMPLES = examples(
    "tuccl synthesize --topology topo.xml --op all_gather --size 1M -o all_gather.xml"
)


def synthesize(
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            metavar="MACHINE",
            help="Any file that `tuccl topology show` reads, shipped:NAME, FILE.json#name of a "
            "file of benchmark topologies, or a topology file of TACCL's.",
            rich_help_panel=MACHINE,
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            "--op", metavar="OP", help="Collective, as nccl-tests names it.", rich_help_panel=SCOPE
        ),
    ],
    size: Annotated[
        str,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="As 64K, 1M, 1G; as nccl-tests counts it.",
            rich_help_panel=SCOPE,
        ),
    ],
    sketch: Annotated[
        Path | None,
        typer.Option(
            "--sketch",
            metavar="FILE",
            help="Sketch to use, in TuCCL's or TACCL's JSON; candidates of its own if not given.",
            readable=False,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    nodes: NodesOption = 1,
    network_gbps: NetworkGbpsOption = None,
    network_latency_us: NetworkLatencyOption = 2.0,
    network_layout: NetworkLayoutOption = "rails",
    root: Annotated[
        int,
        typer.Option(
            metavar="RANK", help="Root rank of broadcast and reduce.", rich_help_panel=SCOPE
        ),
    ] = 0,
    time_limit: Annotated[
        str,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            help="Of the solver on all sketches, as 30s or 2m.",
            rich_help_panel=SEARCH,
        ),
    ] = "30s",
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Sketches solved side by side; as many as cores if not given.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the schedule there; -: standard output.",
            readable=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help="Of the file: msccl, msccl-microsoft, mscclpp or nccl-graph; by the file's ending "
            "if not given. The fastest schedule that the format can tell is taken.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the fastest schedule for one collective and size, proved right, beside its bound."""
    from tuccl.commands import synthesize as synthesizing
    from tuccl.inputs.machine import MachineOptions

    command = synthesizing.SynthesizeCommand(
        machine=MachineOptions(topology, nodes, network_gbps, network_latency_us, network_layout),
        operation=operation,
        size=size,
        sketch=sketch,
        root=root,
        time_limit=time_limit,
        jobs=jobs,
        output=output,
        format=format_,
        as_json=as_json,
    )
    raise typer.Exit(synthesizing.synthesize_command(command))
