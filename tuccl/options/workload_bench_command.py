"""`WorkloadBenchCommand` and `WorkloadTrimCommand`: options of benches of a user's own job."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tuccl.options.option import MEASURING, OUTPUT, named_path, option
from tuccl.workspace.default_place import DEFAULT_WORKSPACE


@dataclass(frozen=True)
class WorkloadBenchCommand:
    """The options of `tuccl workload bench`."""

    NAME: ClassVar = "workload bench"
    job: tuple[str, ...] = field(
        default=(),
        metadata=option("", "The job: torchrun, srun, a script.", "CMD", positional=True),
    )
    table: Path | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "A directory of `tuccl ship`, or a workspace; else that of --workspace.",
            "PLACE",
            parse=named_path,
        ),
    )
    rounds: int = field(
        default=5,
        metadata=option(
            MEASURING, "Runs without and with the table each, in turn.", "N", bounds=(2, 1000)
        ),
    )
    metric: str | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "The figure in the job's output: a regular expression with one group, a number. A "
            "run's figure is the median; the time of the whole run if not given.",
            "REGEX",
        ),
    )
    skip: int = field(
        default=0,
        metadata=option(
            MEASURING,
            "Leave out the first N numbers of each run: steps that warm up.",
            "N",
            bounds=(0, 1e9),
        ),
    )
    higher_is_better: bool = field(
        default=False,
        metadata=option(MEASURING, "The figure is a throughput, as tokens per second."),
    )
    unit: str | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "Unit of a figure that is the time of a step: what the table saves is held against "
            "what it predicts.",
            "us|ms|s",
        ),
    )
    limit: str | None = field(
        default=None,
        metadata=option(
            MEASURING, "Time after which a run is ended and the bench fails, as 10m.", "TIME"
        ),
    )
    logs: Path | None = field(
        default=None,
        metadata=option(
            OUTPUT, "Keep the output of every run in this directory.", "DIR", parse=named_path
        ),
    )
    workspace: Path = DEFAULT_WORKSPACE
    as_json: bool = False


@dataclass(frozen=True)
class WorkloadTrimCommand(WorkloadBenchCommand):
    """The options of `tuccl workload trim`."""

    NAME: ClassVar = "workload trim"
    part_rounds: int | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "Rounds that tell the table's parts apart, two runs each, rounded up to what their "
            "number takes: 8 for up to 5 parts, 16 for up to 13; 8 if not given.",
            "N",
            bounds=(2, 1000),
        ),
    )
    output: Path | None = field(
        default=None,
        metadata=option(
            OUTPUT,
            "Ship the table without what slows the job down to this directory, which may be that "
            "of --table; nothing is written if not given.",
            "DIR",
            parse=named_path,
        ),
    )
