"""Measuring with real worker processes: what is counted, what fails, and who comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.measuring.workers import faulty_engine as faults
from tests.tuccl.measuring.workers.worker_fixtures import FAULTY, ROOT, OpenBackend
from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.backend import JobCall, JobTable
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.timing import Timing

pytestmark = pytest.mark.long

PAIR = Shape(2, 1, 2)
WHOLE, NODES, RAILS = Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1)
TASK = Task(Collective.ALL_REDUCE, 4096, PAIR)
GOOD = Config("ring", "LL", 1)


def faulty(nchannels: int) -> Config:
    return Config("ring", "LL", nchannels)


def gone(pids: tuple[int, ...]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


def test_samples_and_what_they_cost(open_backend: OpenBackend) -> None:
    backend, places = open_backend(3)
    backend.measure(TASK, STOCK, 0, 1)
    pids = places.pids
    began = time.monotonic()
    measured = backend.measure(TASK, STOCK, 1, 5)
    took_s = time.monotonic() - began
    assert len(measured.samples_us) == 5
    # Twenty calls a launch lie within the seconds; the seconds are those of the wall.
    assert 20 * sum(measured.samples_us) / 1e6 < measured.seconds <= took_s
    assert backend.provenance.describe().endswith(
        "sockets, stand-in over sockets, NumPy " + _numpy_version()
    )
    assert backend.timing == Timing(graph=False)
    assert places.pids == pids
    assert len(pids) == 2, "the group of 3 made way for one of 2"


def test_all_communicators_of_a_shape_run_at_once_and_the_slowest_counts(
    open_backend: OpenBackend,
) -> None:
    backend, places = open_backend(4, FAULTY, laboratory=Laboratory(2), shapes=(NODES, RAILS))
    pids = places.pids
    for shape in (WHOLE, NODES, RAILS):
        for operation in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
            task = Task(operation, 4096, shape)
            assert len(backend.measure(task, GOOD, 0, 1).samples_us) == 1
            backend.check(task, GOOD)
            with pytest.raises(ConfigurationFailedError, match="wrong data: rank 1: byte 7 is off"):
                backend.check(task, faulty(faults.ONE_IS_WRONG))
    # Rank 1 is on one node and one rail only, and its sibling's launches are not held up by it.
    for shape in (NODES, RAILS):
        late = backend.measure(replace(TASK, shape=shape), faulty(faults.ONE_IS_LATE), 0, 1)
        assert late.samples_us[0] > faults.LATE_US
    assert places.pids == pids, "one start serves all shapes"


def test_of_ranks_that_sit_elsewhere_the_siblings_of_the_placement_count(
    open_backend: OpenBackend,
) -> None:
    backend, places = open_backend(4, FAULTY, shapes=(PAIR,))
    pids = places.pids
    late = {}
    for stride, sibling in ((1, 0), (1, 1), (2, 0), (2, 1)):
        task = replace(TASK, placement=Placement(stride, (sibling,)))
        (time_us,) = backend.measure(task, faulty(faults.ONE_IS_LATE), 0, 1).samples_us
        late[stride, sibling] = time_us > faults.LATE_US
        backend.check(task, GOOD)
    # Rank 1 is late: neighbour of rank 0, and two away from rank 3.
    assert late == {(1, 0): True, (1, 1): False, (2, 0): False, (2, 1): True}
    assert places.pids == pids
    with pytest.raises(MeasurementError, match="leave some of 4 ranks"):
        backend.measure(replace(TASK, placement=Placement(3, (0,))), GOOD, 0, 1)


def test_what_is_allowed_runs_on_the_siblings_that_count(open_backend: OpenBackend) -> None:
    backend, _ = open_backend(4, FAULTY, shapes=(PAIR,))
    told = {
        placement: str(backend.cost_table(replace(TASK, placement=placement)))
        for placement in (
            Placement(1, (0,)),
            Placement(1, (1,)),
            Placement(1, (0, 1)),
            Placement(2, (0,)),
        )
    }
    # The first two ranks tell 20 us, the last two 40; each two allow something that others do not.
    first, last = "ring/Simple=20.0 nvls/Simple=9.0", "ring/Simple=40.0 tree/LL=1.0"
    assert list(told.values()) == [first, last, "ring/Simple=?", "ring/Simple=?"]
    without, _ = open_backend(2)
    assert without.cost_table(TASK) is None


def test_a_profile_that_one_shape_cannot_have_is_refused_for_it_and_leaves_no_workers(
    open_backend: OpenBackend,
) -> None:
    backend, places = open_backend(4, FAULTY, laboratory=Laboratory(2), shapes=(NODES,))
    pids = places.pids
    with pytest.raises(ConfigurationFailedError, match="128 threads are too few for two"):
        backend.measure(
            Task(Collective.ALL_REDUCE, 4096, NODES), Config("ring", "LL", 1, nthreads=128), 0, 1
        )
    assert gone(pids)
    assert not places.pids
    assert (
        len(backend.measure(Task(Collective.ALL_REDUCE, 4096, NODES), GOOD, 0, 1).samples_us) == 1
    )


def test_a_lost_sibling_costs_one_start_of_all(open_backend: OpenBackend) -> None:
    backend, places = open_backend(4, FAULTY, laboratory=Laboratory(2), shapes=(NODES,))
    pids = places.pids
    task = Task(Collective.ALL_REDUCE, 4096, NODES)
    with pytest.raises(ConfigurationFailedError, match="rank 1 died: killed by signal 6"):
        backend.measure(task, faulty(faults.ONE_ABORTS), 0, 1)
    assert gone(pids)
    backend.check(task, GOOD)
    assert len(places.pids) == 4


def _numpy_version() -> str:
    import numpy as np  # noqa: PLC0415 - only to compare

    return np.__version__


def test_one_profile_is_up_at_a_time(open_backend: OpenBackend) -> None:
    backend, places = open_backend(2, variables={"FOR_ALL": "1"})
    stock_pids = places.pids
    config = Config("ring", "Simple", 1, buffer_bytes=48 << 10)
    first = backend.measure(TASK, config, 0, 1).seconds
    again = backend.measure(TASK, config, 1, 1).seconds
    assert first > 5 * again
    assert 0.05 < backend.restart_s < 60.0
    assert gone(stock_pids)
    environments = [psutil.Process(pid).environ() for pid in places.pids]
    assert {environment["FOR_ALL"] for environment in environments} == {"1"}
    assert [environment.get("NCCL_BUFFSIZE") for environment in environments] == ["49152"] * 2


def test_faults_of_a_configuration_are_its_own(open_backend: OpenBackend) -> None:
    told: list[str] = []
    backend, places = open_backend(2, FAULTY, least_deadline_s=1.0, tell=told.append)
    backend.measure(TASK, STOCK, 0, 1)
    pids = places.pids
    reasons = {}
    for fault in (faults.ALL_REFUSE, faults.ONE_REFUSES, faults.ONE_ABORTS, faults.ONE_HANGS,
                  faults.ALL_BREAK):  # fmt: skip
        with pytest.raises(ConfigurationFailedError) as raised:
            backend.measure(TASK, faulty(fault), 0, 2)
        reasons[fault] = str(raised.value)
        assert raised.value.seconds > 0
        assert len(backend.measure(TASK, GOOD, 0, 1).samples_us) == 1
        if fault == faults.ALL_REFUSE:
            assert places.pids == pids, "what all refuse costs no restart"
    assert reasons == {
        faults.ALL_REFUSE: "no such channels",
        faults.ONE_REFUSES: "rank 1: not on this rank",
        faults.ONE_ABORTS: "rank 1 died: killed by signal 6 (SIGABRT): about to abort",
        faults.ONE_HANGS: reasons[faults.ONE_HANGS],
        faults.ALL_BREAK: "unhandled CUDA error",
    }
    assert reasons[faults.ONE_HANGS].startswith("hung: no answer from rank 0, 1 within 1.")
    assert gone(pids)
    assert len(told) == len(backend.incidents) == 4
    backend.check(TASK, GOOD)
    with pytest.raises(ConfigurationFailedError, match="wrong data: rank 1: byte 7 is off"):
        backend.check(TASK, faulty(faults.ONE_IS_WRONG))
    with pytest.raises(ConfigurationFailedError, match="96 threads are too few"):
        backend.measure(TASK, Config("ring", "LL", 1, nthreads=96), 0, 1)
    with pytest.raises(ConfigurationFailedError, match="runs no schedules"):
        backend.measure(TASK, Config("schedule:0a", "LL", 1), 0, 1)


def test_where_no_table_is_loaded_a_job_makes_its_calls_under_its_profile(
    open_backend: OpenBackend,
) -> None:
    backend, places = open_backend(2, FAULTY, variables={"FOR_ALL": "1"})
    pids, other = places.pids, replace(TASK, size_bytes=8192)
    profile = ProcessProfile(buffer_bytes=48 << 10)
    late = profile.applied_to(faulty(faults.ONE_IS_LATE))
    table = JobTable("00aa", b"", profile, {TASK: late}, loads_executor=False)
    launches = {JobCall(TASK): 2, JobCall(other): 2, JobCall(other, 30_000.0): 2}
    (own, left, beside) = backend.time_job(launches, table, 0).times_us
    assert [call for call, _ in (own, left, beside)] == list(launches)
    assert beside[1] >= 30_000.0 > left[1], "it ends when call and computation have ended"
    assert own[1] > faults.LATE_US > left[1]
    assert gone(pids), "the workers of the search made way"
    refused = replace(table, calls={TASK: faulty(faults.ALL_REFUSE)})
    with pytest.raises(
        ConfigurationFailedError, match="the whole table, all_reduce of 4K: no such"
    ):
        backend.time_job({JobCall(TASK): 2}, refused, 0)
    assert not places.pids
    assert len(backend.measure(TASK, GOOD, 0, 1).samples_us) == 1


def test_a_worker_killed_in_the_middle_costs_time_and_nothing_else(
    open_backend: OpenBackend,
) -> None:
    backend, places = open_backend(2)
    long_task = Task(Collective.ALL_REDUCE, 1 << 20, PAIR)
    backend.measure(long_task, STOCK, 0, 1)
    victim = places.pids[1]
    killer = threading.Timer(0.15, os.kill, (victim, signal.SIGKILL))
    killer.start()
    # About 20 calls of 5 ms each in a launch.
    measured = backend.measure(long_task, STOCK, 1, 8)
    killer.join()
    assert len(measured.samples_us) == 8
    assert len(backend.incidents) == 1
    assert "rank 1 died: killed by signal 9 (SIGKILL)" in backend.incidents[0]
    assert victim not in places.pids


def test_a_worker_that_hangs_is_killed_at_its_deadline(open_backend: OpenBackend) -> None:
    backend, places = open_backend(2, least_deadline_s=1.0)
    backend.measure(TASK, STOCK, 0, 1)
    os.kill(places.pids[0], signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(ConfigurationFailedError, match="hung: no answer from rank 0, 1 within"):
        backend.measure(TASK, GOOD, 0, 1)
    assert time.monotonic() - began < 20.0  # It would hang for good.
    # One that ran before is not to blame.
    backend.measure(TASK, GOOD, 0, 1)
    os.kill(places.pids[1], signal.SIGSTOP)
    assert backend.measure(TASK, GOOD, 1, 2).samples_us
    assert len(backend.incidents) == 2


def test_what_cannot_be_used_at_all_is_told_at_once(open_backend: OpenBackend) -> None:
    with pytest.raises(MeasurementError, match="cannot be used here: no GPU: nvidia-smi"):
        open_backend(2, FAULTY.replace("FaultyEngine", "NoDevice"))
    with pytest.raises(MeasurementError, match="no engine 'nothing'"):
        open_backend(2, "nothing")


def test_a_start_that_fails_on_a_machine_that_worked_is_tried_again(
    open_backend: OpenBackend, tmp_path: Path
) -> None:
    fault = tmp_path / "fault-of-rank-"
    backend, _ = open_backend(2, FAULTY, variables={"FAULTY_START": str(fault)})
    backend.measure(TASK, Config("ring", "Simple", 1, buffer_bytes=48 << 10), 0, 1)
    for rank in range(2):
        Path(f"{fault}{rank}").touch()
    assert len(backend.measure(TASK, GOOD, 0, 1).samples_us) == 1
    assert len(backend.incidents) == 1
    assert "cannot be used here: the device is gone" in backend.incidents[0]


def test_a_profile_whose_restart_fails_after_a_hang_is_tried_again(
    open_backend: OpenBackend, tmp_path: Path
) -> None:
    """CUDA's MPS refuses all clients for seconds after a hung one was killed."""
    fault = tmp_path / "fault-of-rank-"
    backend, _ = open_backend(
        2, FAULTY, least_deadline_s=1.0, variables={"FAULTY_START": str(fault)}
    )
    proved = Config("ring", "Simple", 1, buffer_bytes=48 << 10)
    backend.measure(TASK, proved, 0, 1)
    for rank in range(2):
        Path(f"{fault}{rank}").touch()
    with pytest.raises(ConfigurationFailedError, match="hung: no answer from rank 0, 1 within"):
        backend.measure(TASK, replace(proved, nchannels=faults.ONE_HANGS), 0, 1)
    assert len(backend.measure(TASK, proved, 1, 1).samples_us) == 1


def test_a_machine_on_which_nothing_runs_ends_the_measuring(open_backend: OpenBackend) -> None:
    backend, places = open_backend(2, start_timeout_s=5.0)
    stop = threading.Event()

    def kill_whatever_starts() -> None:
        while not stop.wait(0.01):
            for pid in places.pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    killer = threading.Thread(target=kill_whatever_starts)
    killer.start()
    time.sleep(0.2)  # Those that are up die first.
    try:
        with pytest.raises(MeasurementError, match="could not be brought up 4 times in a row"):
            backend.measure(TASK, GOOD, 0, 1)
    finally:
        stop.set()
        killer.join()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_leader(how: signal.Signals) -> None:
    program = (
        # A shell that runs the tests in its background has SIGINT ignored, and that is inherited.
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from lookup_tables.table import *\n"
        "from tuccl.measuring.backends.workers_backend import *\n"
        "from tuccl.crew.places import LocalPlaces\n"
        "places = LocalPlaces(2)\n"
        "task = Task(Collective.ALL_REDUCE, 1 << 20, Shape(2, 1, 2))\n"
        "with open_workers_backend('sockets', places, WorkersOptions()) as backend:\n"
        "    print(*places.pids, flush=True)\n"
        "    while True:\n"
        "        backend.measure(task, STOCK, 0, 9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as leader:
        assert leader.stdout is not None
        pids = tuple(map(int, leader.stdout.readline().split()))
        assert len(pids) == 2
        assert all(map(psutil.pid_exists, pids))
        time.sleep(0.2)
        leader.send_signal(how)
        try:
            leader.wait(20.0)
        finally:
            leader.kill()
    deadline = time.monotonic() + 20.0
    while not gone(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(pids)


def test_a_slow_configuration_gets_one_sample_where_more_would_cost(
    open_backend: OpenBackend,
) -> None:
    backend, _ = open_backend(2)
    task = Task(Collective.ALL_REDUCE, 64 << 10, PAIR)
    default_us = min(backend.measure(task, STOCK, 0, 3).samples_us)
    # Pieces of 128 bytes: 256 questions a step.
    slow = Config("ring", "Simple", 1, buffer_bytes=1024)
    measured = backend.measure(task, slow, 0, 5)
    assert len(measured.samples_us) == 1
    assert measured.samples_us[0] > 4 * default_us
    assert len(backend.measure(task, slow, 1, 4).samples_us) == 1
