"""NCCL Inspector's JSON: objects of several releases, sizes, and calls it did not write."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import SHARED_DATA, requires_shared_data
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


def stats(rank: int = 0, coll: int = 0, p2p: int = 0) -> dict[str, Any]:
    """What the Inspector writes at the begin of a dump."""
    dropped = {"coll_dropped_total": coll, "p2p_dropped_total": p2p}
    return {"header": record(rank)["header"], "dump_stats": dropped}


def sent(number: int) -> dict[str, Any]:
    head = {"header": record()["header"]}
    return head | {"p2p_perf": {"p2p": "Send", "p2p_sn": number, "p2p_msg_size_bytes": 512}}


def left_out(folder: Path, *objects: object) -> str:
    (only,) = workload(folder, lines(*objects)).source.left_out or ("",)
    return only.removeprefix(
        "calls that the Inspector did not write (too small, not timed, dropped), by its numbers: "
    )


@pytest.mark.parametrize(
    ("objects", "missing"),
    [
        ([record(number=0), record(number=1)], ""),
        ([record(number=1024), record(number=1025)], "1024"),
        ([record(number=2), record(name="AllGather", number=2)], "4"),
        # What is counted as dropped is what the numbers lack, but for the end.
        ([stats(coll=7), record(number=7), stats(coll=9)], "9"),
        ([stats(coll=1), record(number=7)], "7"),
        ([record(number=0), sent(2), sent(3)], "2"),
        ([record(number=0), stats(p2p=4), sent(2), stats(1, coll=5)], "9"),
    ],
)
def test_what_was_dropped_is_told(tmp_path: Path, objects: list[object], missing: str) -> None:
    assert left_out(tmp_path, *objects) == missing


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(0, 40))
def test_as_much_is_told_as_is_not_written(written: set[int], dropped: int) -> None:
    """Calls 0 to 60 were made; the last that was written is the last that is known of."""
    objects = [stats(coll=dropped), *(record(number=number) for number in sorted(written))]
    with TemporaryDirectory() as folder:
        found = left_out(Path(folder), *objects)
    assert int(found or 0) == max(dropped, max(written) + 1 - len(written))


@requires_shared_data
def test_a_public_recording_whose_first_calls_were_dropped_says_so(tmp_path: Path) -> None:
    text = (SHARED_DATA / "public_cases" / "inspector-dropped-first.jsonl").read_text()
    found = workload(tmp_path, text)
    assert sum(call.calls_per_step for call in found.calls) == 4
    assert found.source.left_out[0].endswith(": 1024")


def test_pretty_printed_and_damaged_objects(tmp_path: Path) -> None:
    text = json.dumps(record(number=0), indent=2) + "\n" + lines(record(number=1))[:60] + "\n"
    found = workload(tmp_path, text + lines(record(number=1)))
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
