"""Recordings of the profiler plugin: what its files say, merged over the ranks of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.silent_progress import silent
from tuccl.errors import InputFileError
from tuccl.workloads.recordings.importing import Imported, import_recordings
from tuccl.workloads.workload import Datatype, Reduction, SourceKind, WorkloadCall

Json = dict[str, Any]


def call(operation: str, size_bytes: int, calls: int, **more: Any) -> Json:
    plain = {"datatype": "float16", "reduction": None, "in_place": None, "graph": False}
    return {"operation": operation, **plain, "calls": calls, "bytes": size_bytes, **more}


def summed(operation: str, total_bytes: int, calls: int) -> Json:
    found = call(operation, 0, calls, total_bytes=total_bytes)
    del found["bytes"]
    return found


def part(number: int, rank: int, ranks: int | None, *calls: Json, nodes: int | None = 1) -> Json:
    """A rank's part of a communicator."""
    nodes = None if ranks is None else nodes
    name = f"{number:016x}"
    return {"hash": name, "rank": rank, "ranks": ranks, "nodes": nodes, "calls": list(calls)}


def document(process: int, *parts: Json, **more: Any) -> Json:
    return {
        "format": "tuccl-recording", "version": 1, "host": "node0", "process": process,
        "profiler_abi": 5, "executor_calls": 0, "communicators_left_out": 0, "calls_left_out": 0,
        "communicators": list(parts), **more,
    }  # fmt: skip


def read(folder: Path, documents: Sequence[Mapping[str, Any]], steps: float | None) -> Imported:
    files = []
    for number, written in enumerate(documents):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps(written), encoding="utf-8")
    return import_recordings(files, None, steps, silent)


def figures(made: WorkloadCall) -> tuple[Collective, int, int, int, float]:
    return made.operation, made.size_bytes, made.ranks, made.siblings, made.calls_per_step


def test_the_ranks_of_a_job_are_one_workload(tmp_path: Path) -> None:
    """Calls of one rank, sizes as nccl-tests counts them, pairs that call at once."""
    documents = [
        document(
            rank,
            part(
                1, rank, 4,
                call("all_reduce", 4096, 20, reduction="sum", in_place=True),
                call("all_gather", 512, 10),
                call("reduce_scatter", 256, 10, datatype=None),
                call("alltoall", 64, 10, graph=True),
            ),
            part(2 + rank // 2, rank % 2, 2, call("all_reduce", 4096, 30)),
        )
        for rank in range(4)
    ]  # fmt: skip
    found = read(tmp_path, documents, 10)
    workload = found.workload
    assert (workload.ranks, workload.nodes, workload.steps) == (4, 1, 10)
    assert workload.source.kind is SourceKind.RECORDED
    assert [figures(made) for made in workload.calls] == [
        (Collective.ALL_GATHER, 2048, 4, 1, 1.0),
        (Collective.REDUCE_SCATTER, 1024, 4, 1, 1.0),
        (Collective.ALL_REDUCE, 4096, 4, 1, 2.0),
        (Collective.ALLTOALL, 256, 4, 1, 1.0),
        (Collective.ALL_REDUCE, 4096, 2, 2, 3.0),
    ]
    gather, scatter, reduce, exchange, _ = workload.calls
    assert (reduce.datatype, reduce.reduction) == (Datatype.FLOAT16, Reduction.SUM)
    assert (reduce.in_place, gather.in_place, scatter.datatype) == (True, None, None)
    assert (gather.graph, exchange.graph) == (False, True)
    (note,) = found.notes
    assert note.startswith("a call in a CUDA graph counts once, when it is captured")


def test_before_nccl_2_27_ranks_and_hosts_are_counted(tmp_path: Path) -> None:
    documents = [
        document(7, part(1, rank, None, call("all_gather", 512, 3)), host=host, profiler_abi=3)
        for rank, host in enumerate(("a", "b", "c"))
    ]
    found = read(tmp_path, documents, None)
    (made,) = found.workload.calls
    assert (made.ranks, made.nodes, made.size_bytes, made.calls_per_step) == (3, 3, 1536, 3.0)
    assert any("NCCL before 2.28" in note for note in found.notes)
    missing = read(tmp_path, documents[::2], None)
    assert (missing.workload.calls[0].ranks, missing.workload.calls[0].nodes) == (3, None)
    assert f"communicator {1:016x}: 2 of 3 ranks were recorded" in missing.notes


def test_several_gpus_of_a_process(tmp_path: Path) -> None:
    parts = [part(1, rank, 4, call("all_reduce", 4096, 5)) for rank in range(4)]
    (made,) = read(tmp_path, [document(1, *parts)], None).workload.calls
    assert (made.ranks, made.siblings, made.calls_per_step) == (4, 1, 5.0)


def test_communicators_of_one_hash(tmp_path: Path) -> None:
    """A process is no two ranks of one number."""
    documents = [
        document(
            rank,
            part(1, rank, 2, call("all_reduce", 4096, 5)),
            part(1, rank, 2, call("all_reduce", 4096, 7)),
        )
        for rank in range(2)
    ]
    workload = read(tmp_path, documents, None).workload
    (made,) = workload.calls
    assert (workload.ranks, made.siblings, made.calls_per_step) == (2, 1, 12.0)


def test_a_process_that_ended_sooner_hides_no_call(tmp_path: Path) -> None:
    documents = [
        document(rank, part(1, rank, 2, call("all_reduce", 4096, count)))
        for rank, count in enumerate((40, 50))
    ]
    (made,) = read(tmp_path, documents, 10).workload.calls
    assert made.calls_per_step == 5.0


def test_the_root_of_a_broadcast_may_be_in_place_alone(tmp_path: Path) -> None:
    documents = [
        document(rank, part(1, rank, 2, call("broadcast", 64, 4, in_place=rank == 0)))
        for rank in range(2)
    ]
    (made,) = read(tmp_path, documents, None).workload.calls
    assert (made.in_place, made.calls_per_step) == (None, 4.0)


def test_what_is_not_tuned_and_what_is_left_out(tmp_path: Path) -> None:
    first = document(
        0,
        part(
            1, 0, 2,
            call("all_reduce", 8, 2), summed("send", 1001, 4), summed("all_reduce", 9, 6),
        ),
        part(3, 0, 1, call("all_reduce", 8, 9)),
        executor_calls=7,
        communicators_left_out=1,
        calls_left_out=5,
    )  # fmt: skip
    second = document(1, part(1, 1, 2, call("all_reduce", 8, 2), summed("recv", 1001, 4)))
    workload = read(tmp_path, [first, second], None).workload
    assert [figures(made) for made in workload.calls] == [(Collective.ALL_REDUCE, 8, 2, 1, 2.0)]
    # The mean of the ranks.
    assert [
        (kind.operation, kind.calls_per_step, kind.bytes_per_step) for kind in workload.not_tuned
    ] == [("recv", 2.0, 500.5), ("send", 2.0, 500.5)]
    assert set(workload.source.left_out) == {
        "calls of sizes beyond the 4,096 that the recorder keeps: 6",
        "calls on communicators of one rank: 9",
        "calls that TuCCL's executor ran, which NCCL does not see: 7",
        "calls whose operation or type NCCL names in a new way: 5",
        "communicators beyond those that the recorder keeps: 1",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"host": "a/../b"},
        {"communicators": [part(1, -1, 2)]},
        {"communicators": [part(1, 0, 2, call("all_reduce", -1, 2))]},
        {"communicators": [part(1, 0, 2, call("all_reduce", 8, 0))]},
        {"communicators": [part(1, 0, 2, call("all_reduce", 8, 2, total_bytes=8))]},
        {"communicators": [part(1, 0, 2, call("x" * 99, 8, 2))]},
        {"more": 1},
        {"communicators": []},
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, changes: Json) -> None:
    with pytest.raises(InputFileError) as caught:
        read(tmp_path, [document(0, **changes)], None)
    assert "\n" not in str(caught.value)


def test_a_directory_stands_for_its_recordings(tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    directory.mkdir()
    with pytest.raises(InputFileError, match=r"recording holds no recording: have a job write"):
        import_recordings([directory], None, None, silent)
    for rank in range(2):
        written = document(rank, part(1, rank, 2, call("all_reduce", 8, 2)))
        (directory / f"node0.{rank}.ff{rank}.json").write_text(json.dumps(written))
    (directory / "W.json").write_text("{}")
    (directory / "node0.2.ff.json.new").write_text("{")
    workload = import_recordings([directory], None, None, silent).workload
    assert (workload.ranks, workload.source.files) == (2, (str(directory),))
