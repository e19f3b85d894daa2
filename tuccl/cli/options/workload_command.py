"""`WorkloadImportCommand`: the options of `tuccl workload import`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.options.option import OUTPUT, SCOPE, option


@dataclass(frozen=True, kw_only=True)
class WorkloadImportCommand:
    """The options of `tuccl workload import`."""

    files: tuple[str, ...] = field(
        metadata=option(
            "",
            "Recordings of one job: NCCL's log, traces of PyTorch's profiler, NCCL Inspector's "
            "JSON, a CSV of calls; also as gzip. Or the directory of `tuccl workload record`.",
            "FILE...",
            positional=True,
        )
    )
    output: Path = field(
        metadata=option(OUTPUT, "Write the workload there.", "W.json", names=("--output", "-o"))
    )
    kind: str | None = field(
        default=None,
        metadata=option(
            SCOPE,
            "Kind of the recordings, if it is not told by their content.",
            "nccl-log|kineto|inspector|csv|recorded",
            names=("--from",),
        ),
    )
    steps: float | None = field(
        default=None,
        metadata=option(
            SCOPE,
            "Steps that each rank's recording covers; else as the recording tells them.",
            "N",
            bounds=(1e-3, 1e12),
        ),
    )
    step_time: str | None = field(
        default=None,
        metadata=option(
            SCOPE,
            "Time of a step of the job without PyTorch's profiler, which slows its host; traces "
            "then tell what steps without it wait for.",
            "TIME",
        ),
    )
    ranks_per_node: int | None = field(
        default=None,
        metadata=option(
            SCOPE,
            "Ranks on each node, for recordings that do not name hosts.",
            "N",
            bounds=(1, 1 << 20),
        ),
    )
    as_json: bool = False
