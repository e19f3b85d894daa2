"""scripts/measuring_seats.py: which thread gets which core, and in which jobs."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import measuring_rank
import pytest
from measuring_seats import Seats, seats_of

from tests.tuccl.measuring.test_measuring_job import with_ranks_that
from tuccl.measuring.engine import Call


def test_the_first_thread_and_the_oldest_proxy_have_a_core_each() -> None:
    names = {31: "NCCL Progress 2", 7: "python3", 12: "NCCL Progress 1", 9: "NCCL Service  0"}
    assert seats_of(names, 7, [4, 5, 6, 7]) == {
        7: {4},
        9: {6, 7},
        12: {5},
        31: {6, 7},
    }
    for share in ([4, 5], [4, 5, 6]):
        whole = set(share)
        assert seats_of(names, 7, share) == {7: {4}, 9: whole, 12: {5}, 31: whole}
    del names[12], names[31]
    assert seats_of(names, 7, [4, 5, 6]) == {7: {4}, 9: {5, 6}}


def test_threads_take_their_seats_once_they_are_there_and_have_their_name(cores: set[int]) -> None:
    if len(cores) < 2:
        pytest.skip("a seat is a core: needs two")
    main, proxy = sorted(cores)[:2]
    own = Seats(sorted(cores))
    own.take()
    assert os.sched_getaffinity(0) == {main}
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        own.take()
        rest = cores - {main}
        assert os.sched_getaffinity(thread.native_id) == (rest if len(rest) > 1 else cores)
        Path(f"/proc/self/task/{thread.native_id}/comm").write_text("NCCL Progress 3")
        own.take()
        assert os.sched_getaffinity(thread.native_id) == {proxy}
    finally:
        end.set()
        thread.join()
    own.take()
    assert os.sched_getaffinity(0) == {main}


def test_without_a_share_of_its_own_a_process_keeps_all_cores(cores: set[int]) -> None:
    for share in ([], [min(cores)]):
        Seats(share).take()
    assert os.sched_getaffinity(0) == cores


@pytest.mark.parametrize("pinned", [True, False])
def test_ranks_that_are_pinned_take_their_seats_before_they_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cores: set[int], *, pinned: bool
) -> None:
    timed_on: list[set[int]] = []

    class Engine:
        def __init__(self, *, controlled: bool) -> None:
            assert controlled

        def make_group_id(self) -> bytes:
            return b"id"

        def open(self, *_place: object) -> str:
            return "1"

        def time(self, _call: Call, launches: int) -> list[float]:
            timed_on.append(os.sched_getaffinity(0))
            return [1.0] * launches

        def last_question(self) -> None:
            return None

        def close(self) -> None:
            pass

    monkeypatch.setattr(measuring_rank, "NcclEngine", Engine)
    job: dict[str, Any] = {"ranks": 1, "gpus": 1, "folder": str(tmp_path)}
    job |= {"controlled": True, "pinned": pinned}
    job["steps"] = [{"operation": "all_reduce", "size_bytes": 1024}] * 2
    measuring_rank.run_job(job, 0)
    expected = {min(cores)} if pinned and len(cores) > 1 else cores
    assert timed_on == [expected, expected]


def test_threads_have_names_where_they_have_seats(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = """
import json, os, sys
job = json.load(open(sys.argv[1]))
result = {"versions": os.environ.get("NCCL_SET_THREAD_NAME", ""), "open_seconds": 0.0}
with open(f"{job['folder']}/result{sys.argv[2]}.json", "w") as file:
    json.dump(result | {"results": []}, file)
"""
    monkeypatch.delenv("NCCL_SET_THREAD_NAME", raising=False)
    measuring_job = with_ranks_that(monkeypatch, tmp_path, program)
    names = {
        pinned: measuring_job.run_job(
            tmp_path / str(pinned), 1, [], {}, libraries=tmp_path, controlled=False, pinned=pinned
        ).versions
        for pinned in (True, False)
    }
    assert names == {True: "1", False: ""}
