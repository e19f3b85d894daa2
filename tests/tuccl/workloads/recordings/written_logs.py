"""Lines of logs as NCCL writes them, and traces as PyTorch's profiler does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.tuccl.silent_progress import silent
from tuccl.workloads.recordings.importing import Imported, import_recordings
from tuccl.workloads.workload import SourceKind, Workload


def prefix(rank: int, host: str = "node0") -> str:
    """The beginning of a rank's lines; each rank is a process with one GPU."""
    return f"{host}:{1000 + rank}:{2000 + rank} [{rank}] NCCL INFO "


def init(
    rank: int, ranks: int, *, comm: str = "0xa0", comm_id: str = "0xfeed", host: str = "node0"
) -> str:
    """The line of a communicator that is ready, of NCCL 2.18 and later."""
    return (
        f"{prefix(rank, host)}ncclCommInitRankConfig comm {comm} rank {rank} nranks {ranks} "
        f"cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId {comm_id} - Init COMPLETE\n"
    )


def call(
    rank: int,
    ranks: int,
    *,
    operation: str = "AllReduce",
    count: int = 1024,
    datatype: int = 7,
    op: int = 0,
    comm: str = "0xa0",
    send: int = 0x7F0000000000,
    receive: int = 0x7F0000000000,
    host: str = "node0",
) -> str:
    """The line of a call."""
    return (
        f"{prefix(rank, host)}{operation}: opCount 0 sendbuff {send:#x} recvbuff {receive:#x} "
        f"count {count} datatype {datatype} op {op} root 0 comm {comm} [nranks={ranks}] "
        "stream 0x55f1de727ae0\n"
    )


def event(
    name: str = "allreduce",
    *,
    ts: float = 10.0,
    elements: tuple[int, int] = (1000, 1000),
    dtype: str = "Float",
    ranks: Sequence[int] = (0, 1),
    group: str = "0",
    **more: Any,
) -> dict[str, Any]:
    """The CPU event of a call."""
    arguments = {
        "Collective name": name,
        "dtype": dtype,
        "In msg nelems": elements[0],
        "Out msg nelems": elements[1],
        "Group size": len(ranks),
        "Process Group Name": group,
        "Process Group Ranks": str(list(ranks)),
        **more,
    }
    return {
        "ph": "X", "cat": "cpu_op", "name": "record_param_comms",
        "pid": 1, "tid": 1, "ts": ts, "dur": 5.0, "args": arguments,
    }  # fmt: skip


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    """The annotation of a step."""
    return {
        "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}",
        "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {},
    }  # fmt: skip


def trace(events: Iterable[dict[str, Any]], rank: int = 0, world: int = 2) -> str:
    """A trace of one rank."""
    return json.dumps(
        {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
            "traceEvents": list(events),
            "traceName": "trace.json",
        }
    )


def imported(
    folder: Path,
    *texts: str | bytes,
    kind: SourceKind | None = None,
    steps: float | None = None,
    ranks_per_node: int | None = None,
    step_us: float | None = None,
) -> Imported:
    """Texts, imported as one file each."""
    files = []
    for number, text in enumerate(texts):
        path = folder / f"recording-{number}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        files.append(path)
    return import_recordings(
        files, kind, steps, silent, ranks_per_node=ranks_per_node, step_us=step_us
    )


def workload(folder: Path, *texts: str | bytes, **options: Any) -> Workload:
    """The workload of texts, imported as one file each."""
    return imported(folder, *texts, **options).workload
