"""`BenchCommand`: the options of `tuccl bench`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.options.option import (
    LABORATORY,
    MACHINE,
    MEASURING,
    SCOPE,
    named_path,
    option,
)
from tuccl.options.run_options import IN_PLACE, SHARE_GPUS
from tuccl.workspace.default_place import DEFAULT_WORKSPACE


@dataclass(frozen=True)
class BenchCommand:
    """The options of `tuccl bench`."""

    place: Path | None = field(
        default=None,
        metadata=option(
            "",
            "A directory of `tuccl ship`, or a workspace; else that of --workspace.",
            "PLACE",
            positional=True,
            parse=named_path,
        ),
    )
    second_place: Path | None = field(
        default=None,
        metadata=option(
            "",
            "A second one, to compare with stock NCCL and with the first.",
            "OTHER",
            positional=True,
            parse=named_path,
        ),
    )
    operations: str | None = field(
        default=None,
        metadata=option(
            SCOPE,
            "As nccl-tests names them; the table's if not given.",
            "OP,...",
            names=("--ops",),
        ),
    )
    sizes: str | None = field(
        default=None,
        metadata=option(SCOPE, "As 64K,1M,1G; the table's if not given.", "SIZE,..."),
    )
    workload: Path | None = field(
        default=None,
        metadata=option(
            SCOPE,
            "The collectives of a job, as `tuccl workload` writes them: their keys are timed, and "
            "the gain of a step is told.",
            "FILE.json",
            parse=named_path,
        ),
    )
    rounds: int | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "Starts of each contender, in turn; 5 if neither this nor a budget is given.",
            "N",
        ),
    )
    budget: str | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "Machine time, as 90s, 10m: as many rounds as fit, two at least.",
            "TIME",
        ),
    )
    plain: bool | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "Time calls one by one, or replay them from CUDA graphs; if not given, as the "
            "table was tuned, else graphs.",
            names=("--plain/--graphs",),
        ),
    )
    in_place: bool = field(default=False, metadata=IN_PLACE)
    alone: bool = field(
        default=False,
        metadata=option(
            MEASURING, "Time calls alone, also where those of the table were not when it was tuned."
        ),
    )
    no_executor: bool = field(
        default=False,
        metadata=option(
            MEASURING, "Load the plugin alone, also where the table loads the executor."
        ),
    )
    nccl: Path | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "A libnccl.so.2. Of another release than the one that is found, both are held "
            "against each other: what an upgrade changes.",
            "PATH",
        ),
    )
    gpus: int | None = field(
        default=None, metadata=option(MACHINE, "The first N GPUs of this host; else all.", "N")
    )
    fake_nodes: str = field(
        default="1",
        metadata=option(
            LABORATORY,
            "Nodes that this host's GPUs appear as: their number, or their sizes, as 3+1.",
            "NODES",
        ),
    )
    share_gpus: bool = field(default=False, metadata=SHARE_GPUS)
    workspace: Path = DEFAULT_WORKSPACE
    as_json: bool = False
