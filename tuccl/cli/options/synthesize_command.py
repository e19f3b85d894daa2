"""`SynthesizeCommand`: the options of `tuccl synthesize`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import OUTPUT, SCOPE, SEARCH, option


@dataclass(frozen=True, kw_only=True)
class SynthesizeCommand(MachineOptions):
    """The options of `tuccl synthesize`, whose machine is always named."""

    operation: str = field(
        metadata=option(SCOPE, "Collective, as nccl-tests names it.", "OP", names=("--op",))
    )
    size: str = field(metadata=option(SCOPE, "As 64K, 1M, 1G; as nccl-tests counts it.", "SIZE"))
    sketch: Path | None = field(
        default=None,
        metadata=option(
            SEARCH,
            "Sketch to use, in TuCCL's or TACCL's JSON; candidates of its own if not given.",
            "FILE",
        ),
    )
    root: int = field(
        default=0, metadata=option(SCOPE, "Root rank of broadcast and reduce.", "RANK")
    )
    time_limit: str = field(
        default="30s",
        metadata=option(
            SEARCH,
            "Work of the solver on all sketches, in seconds of an idle core, as 30s or 2m.",
            "TIME",
        ),
    )
    jobs: int | None = field(
        default=None,
        metadata=option(
            SEARCH, "Sketches solved side by side; as many as cores if not given.", "N"
        ),
    )
    output: Path | None = field(
        default=None,
        metadata=option(
            OUTPUT,
            "Write the schedule there; -: standard output.",
            "FILE",
            names=("--output", "-o"),
        ),
    )
    format: str | None = field(
        default=None,
        metadata=option(
            OUTPUT,
            "Format of the file: msccl, msccl-microsoft, mscclpp or nccl-graph; by the file's "
            "ending if not given. The fastest schedule that it can express is taken.",
            "NAME",
        ),
    )
    as_json: bool = False
