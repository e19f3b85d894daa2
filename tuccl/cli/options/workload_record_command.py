"""`WorkloadRecordCommand`: the options of `tuccl workload record`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.options.option import OUTPUT, option


@dataclass(frozen=True)
class WorkloadRecordCommand:
    """The options of `tuccl workload record`."""

    job: tuple[str, ...] = field(
        default=(),
        metadata=option("", "The job: torchrun, mpirun, a script.", "CMD", positional=True),
    )
    output: Path | None = field(
        default=None,
        metadata=option(OUTPUT, "Write the workload there.", "W.json", names=("--output", "-o")),
    )
    steps: float | None = field(
        default=None,
        metadata=option(
            "",
            "Steps that the job makes: figures become those of one step.",
            "N",
            bounds=(1e-6, 1e12),
        ),
    )
    variables: Path | None = field(
        default=None,
        metadata=option(
            "",
            "Run nothing: print the variables that have a job record into this directory.",
            "DIR",
            names=("--env",),
        ),
    )
    as_json: bool = False
