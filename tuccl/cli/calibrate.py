"""The command `tuccl calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.help import MACHINE, OUTPUT, SCOPE, examples
from tuccl.cli.options import (
    JsonOption,
    NetworkGbpsOption,
    NetworkLatencyOption,
    NetworkLayoutOption,
    NodesOption,
)

EXAMPLES = examples("tuccl calibrate h200.parquet --topology topo.xml -o h200.json")


def calibrate(
    measured: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A record (.parquet), a grid (.csv), or what nccl-tests printed.",
            readable=False,
        ),
    ],
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            metavar="MACHINE",
            help="The machine that was measured: a file, shipped:NAME or FILE.json#name.",
            rich_help_panel=MACHINE,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            help="Write the constants there.",
            readable=False,
            rich_help_panel=OUTPUT,
        ),
    ],
    operation: Annotated[
        str | None,
        typer.Option(
            "--op",
            metavar="OP",
            help="Collective of nccl-tests output that does not name it.",
            rich_help_panel=SCOPE,
        ),
    ] = None,
    nodes: NodesOption = 1,
    network_gbps: NetworkGbpsOption = None,
    network_latency_us: NetworkLatencyOption = 2.0,
    network_layout: NetworkLayoutOption = "rails",
    as_json: JsonOption = False,
) -> None:
    """Fit the simulated backend to measured times of NCCL on this machine."""
    from tuccl.commands import calibrate as calibrating
    from tuccl.inputs.machine import MachineOptions

    command = calibrating.CalibrateCommand(
        measured=measured,
        machine=MachineOptions(topology, nodes, network_gbps, network_latency_us, network_layout),
        operation=operation,
        output=output,
        as_json=as_json,
    )
    raise typer.Exit(calibrating.calibrate_command(command))
