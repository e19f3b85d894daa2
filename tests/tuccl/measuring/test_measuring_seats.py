"""scripts/measuring_seats.py: which thread gets which core."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.runtime.conftest import ROOT


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import measuring_seats  # noqa: PLC0415

    return measuring_seats


@pytest.fixture
def cores() -> Iterator[list[int]]:
    """Of this process, all of whose threads have them again afterwards."""
    own = os.sched_getaffinity(0)
    yield sorted(own)
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), own)


def test_the_first_thread_and_the_oldest_proxy_have_a_core_each(seats: ModuleType) -> None:
    names = {31: "NCCL Progress 2", 7: "python3", 12: "NCCL Progress 1", 9: "NCCL Service  0"}
    assert seats.seats_of(names, 7, [4, 5, 6, 7]) == {7: (4,), 9: (6, 7), 12: (5,), 31: (6, 7)}
    assert seats.seats_of(names, 7, [4, 5]) == {7: (4,), 9: (4, 5), 12: (5,), 31: (4, 5)}
    assert seats.seats_of({7: "python3"}, 7, [4, 5, 6]) == {7: (4,)}


def test_threads_take_their_seats_once_they_are_there_and_have_their_name(
    seats: ModuleType, cores: list[int]
) -> None:
    if len(cores) < 2:
        pytest.skip("a seat is a core: needs two")
    main, proxy, *rest = cores
    own = seats.Seats(cores)
    own.take()
    assert os.sched_getaffinity(0) == {main}
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        own.take()
        assert os.sched_getaffinity(thread.native_id) == set(rest or cores)
        Path(f"/proc/self/task/{thread.native_id}/comm").write_text("NCCL Progress 3")
        own.take()
        assert os.sched_getaffinity(thread.native_id) == {proxy}
    finally:
        end.set()
        thread.join()
    own.take()
    assert os.sched_getaffinity(0) == {main}


def test_without_a_share_of_its_own_a_process_keeps_all_cores(
    seats: ModuleType, cores: list[int]
) -> None:
    for share in ([], cores[:1]):
        seats.Seats(share).take()
    assert sorted(os.sched_getaffinity(0)) == cores
