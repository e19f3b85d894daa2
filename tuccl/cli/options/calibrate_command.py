"""`CalibrateCommand`: the options of `tuccl calibrate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import OUTPUT, SCOPE, option


@dataclass(frozen=True, kw_only=True)
class CalibrateCommand(MachineOptions):
    """The options of `tuccl calibrate`, whose machine is always named."""

    measured: Path = field(
        metadata=option(
            "",
            "A record (.parquet), a grid (.csv), or what nccl-tests printed.",
            "FILE",
            positional=True,
        )
    )
    output: Path = field(
        metadata=option(OUTPUT, "Write the constants there.", "FILE.json", names=("--output", "-o"))
    )
    operation: str | None = field(
        default=None,
        metadata=option(
            SCOPE,
            "Collective of nccl-tests output that does not name it.",
            "OP",
            names=("--op",),
        ),
    )
    as_json: bool = False
