"""Workloads that the tests of their keys, of tuning and of bench share."""

from pathlib import Path

from lookup_tables.collective import Collective
from tuccl.workloads.workload import (
    Datatype,
    NotTuned,
    SourceKind,
    Workload,
    WorkloadCall,
    WorkloadSource,
    sorted_calls,
)
from tuccl.workloads.workload_file import write_workload


def call(
    operation: Collective,
    size_bytes: int,
    calls: float,
    ranks: int = 4,
    nodes: int | None = 1,
    graph: bool | None = None,
    in_place: bool | None = None,
) -> WorkloadCall:
    return WorkloadCall(
        operation=operation, datatype=Datatype.BFLOAT16, reduction=None, size_bytes=size_bytes,
        ranks=ranks, nodes=nodes, siblings=1, in_place=in_place, graph=graph,
        calls_per_step=calls, us_per_call=None,
    )  # fmt: skip


def workload(
    *calls: WorkloadCall, steps: float | None = 10.0, not_tuned: tuple[NotTuned, ...] = ()
) -> Workload:
    source = WorkloadSource(SourceKind.CSV, ("calls.csv",))
    return Workload(
        source=source, ranks=4, nodes=1, steps=steps, calls=sorted_calls(calls),
        not_tuned=not_tuned,
    )  # fmt: skip


def written(path: Path, made: Workload) -> Path:
    write_workload(path, made)
    return path
