"""NCCL Inspector's JSON: objects of several releases, sizes, and calls it did not write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tuccl.workloads.recordings.written_logs import workload
from tuccl.errors import InputFileError


def record(
    rank: int = 0,
    name: str = "AllReduce",
    *,
    number: int = 0,
    passed: int = 1 << 20,
    us: int = 100,
    identity: str = "0x7f",
    ranks: int = 2,
    host: str = "node0",
) -> dict[str, Any]:
    """An object of Inspector v4.0."""
    return {
        "header": {"id": identity, "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "hostname": host,
            "pid": 100 + rank,
        },
        "coll_perf": {
            "coll": name,
            "coll_sn": number,
            "coll_msg_size_bytes": passed,
            "coll_exec_time_us": us,
        },
    }


def lines(*objects: object) -> str:
    return "".join(json.dumps(each) + "\n" for each in objects)


@pytest.mark.parametrize(
    ("name", "size_bytes"), [("AllReduce", 1 << 20), ("AllGather", 2 << 20), ("Broadcast", 1 << 20)]
)
def test_sizes_are_those_of_nccl_tests(tmp_path: Path, name: str, size_bytes: int) -> None:
    (only,) = workload(tmp_path, lines(record(name=name))).calls
    assert only.size_bytes == size_bytes
    assert (only.datatype, only.reduction, only.in_place, only.graph) == (None, None, None, None)


def test_files_of_all_ranks_count_a_call_once_with_the_mean_time(tmp_path: Path) -> None:
    texts = [
        lines(*(record(rank, number=number, us=100 + 50 * rank) for number in range(4)))
        for rank in range(2)
    ]
    found = workload(tmp_path, *texts, steps=2)
    (only,) = found.calls
    assert (only.calls_per_step, only.us_per_call, only.siblings) == (2, 125, 1)
    assert (found.ranks, found.nodes, found.steps) == (2, 1, 2)


def test_communicators_are_told_by_their_ids(tmp_path: Path) -> None:
    """Ranks 0 and 1, 2 and 3 are two communicators; each process has one GPU."""
    objects = [
        record(rank % 2, identity=f"0x{rank // 2}", host=f"n{rank // 2}") for rank in range(4)
    ]
    (only,) = workload(tmp_path, lines(*objects)).calls
    assert (only.siblings, only.calls_per_step) == (2, 1)


def test_point_to_point_calls_are_not_tuned(tmp_path: Path) -> None:
    send = record()
    del send["coll_perf"]
    send["p2p_perf"] = {"p2p": "Send", "p2p_sn": 3, "p2p_peer": 1, "p2p_msg_size_bytes": 512}
    found = workload(tmp_path, lines(record(), send, send))
    assert [(each.operation, each.bytes_per_step) for each in found.not_tuned] == [("send", 1024)]


def test_a_header_holds_for_the_records_below_it(tmp_path: Path) -> None:
    first, second = record(number=1), record(number=2)
    del second["header"]
    head = {"dump_stats": {"dropped": 0}, "header": first["header"]}
    del first["header"]
    assert workload(tmp_path, lines(head, first, second)).calls[0].calls_per_step == 2


def test_pretty_printed_and_damaged_objects(tmp_path: Path) -> None:
    text = json.dumps(record(number=1), indent=2) + "\n" + lines(record(number=2))[:60] + "\n"
    found = workload(tmp_path, text + lines(record(number=2)))
    assert found.calls[0].calls_per_step == 2
    assert found.source.left_out == ("damaged objects: 1",)


@pytest.mark.parametrize(
    "changes",
    [
        {"header": {"id": "0x1", "rank": 2, "n_ranks": 2}},
        {"header": None},
        {"coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": -5}},
        {"coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 1 << 60}},
        {"coll_perf": 7},
    ],
)
def test_objects_without_figures_are_no_calls(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(
        InputFileError, match=r"no collective in it \(inspector; damaged objects: 1"
    ):
        workload(tmp_path, lines(record() | changes))
