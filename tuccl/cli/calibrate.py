"""The command `tuccl calibrate`."""

from __future__ import annotations

from dataclasses import replace

import typer

from tuccl.cli.options.calibrate_command import CalibrateCommand
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption

EXAMPLES = examples("tuccl calibrate h200.parquet --topology topo.xml -o h200.json")


@with_fields(
    required=["topology"],
    helps={"topology": "The machine that was measured: a file, shipped:NAME or FILE.json#name."},
)
def calibrate(command: CalibrateCommand, as_json: JsonOption = False) -> None:
    """Fit the simulated backend to measured times of NCCL on this machine."""
    from tuccl.cli.commands import calibrate as calibrating

    raise typer.Exit(calibrating.calibrate_command(replace(command, as_json=as_json)))
