"""Work side by side: what comes back, in which order, and what ends the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest

from lookup_tables.collective import Collective
from sketches.candidates import sketch_candidates
from synthesizer.formats.msccl_xml import write_msccl_xml
from tests.sketches.machines import cluster
from tuccl.crew.pool import IN_PROCESS, Workers, worker_processes, workers_for
from tuccl.errors import HostError
from tuccl.schedules.schedule_choice import Request, choose_schedule

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[3]
TUCCL = "from tuccl.cli.app import main; main()"


def slow_if_first(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0.0)
    return 10 * number


def fail_if_second(number: int) -> int:
    if number == 1:
        raise ValueError("the second")
    time.sleep(60)
    return number


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("count", [1, 2])
def test_results_keep_the_order_of_the_work(count: int) -> None:
    with worker_processes(count) as workers:
        seen: list[int] = []
        assert workers.each([partial(slow_if_first, i) for i in range(4)], seen.append) == [
            0,
            10,
            20,
            30,
        ]
        assert (seen[0], seen[-1]) == (0, 4)
        assert seen == sorted(seen)

        def until_two(_: int, done: Sequence[int]) -> bool:
            return len(done) < 2

        cut = workers.each([partial(slow_if_first, i) for i in range(9)], may_begin=until_two)
    assert cut == [10 * number for number in range(len(cut))]
    assert 2 <= len(cut) <= 1 + count


def test_an_error_ends_the_others_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match="the second"), worker_processes(2) as workers:
        workers.each([partial(fail_if_second, i) for i in range(2)])
    assert time.monotonic() - started < 30


def test_a_killed_worker_is_one_clear_line() -> None:
    with pytest.raises(HostError, match="use --jobs 1"), worker_processes(2) as workers:
        workers.each([die, die])


def test_the_choice_does_not_depend_on_the_number_of_workers() -> None:
    sketches = sketch_candidates(cluster(2, 2, 2))
    request = Request(Collective.ALL_GATHER, 1 << 20)
    choose = partial(choose_schedule, request, sketches)
    alone = choose(workers=IN_PROCESS)
    with worker_processes(2) as workers:
        together = choose(workers=workers)
    told = [
        [(tried.algorithm, tried.sketch.name, tried.time_us) for tried in choice.tried]
        for choice in (alone, together)
    ]
    assert told[0] == told[1]
    assert write_msccl_xml(together.best.algorithm) == write_msccl_xml(alone.best.algorithm)
    assert together.notes == alone.notes
    assert together.seconds.keys() == alone.seconds.keys()


def test_large_machines_have_a_process_for_each_core_and_small_ones_none() -> None:
    assert workers_for(16) == len(os.sched_getaffinity(0))
    assert workers_for(15) == Workers().count == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_command(how: signal.Signals) -> None:
    command = [
        sys.executable, "-c", TUCCL, "synthesize", "--topology", "shipped:a100-8gpu-8nic",
        "--nodes", "4", "--operation", "all_gather", "--size", "1G", "--jobs", "2",
    ]  # fmt: skip
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        workers = _spawned(process.pid)
        # As a terminal does it: all processes of the group see Ctrl-C.
        if how is signal.SIGINT:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        _, said = process.communicate(timeout=30)
    if how is signal.SIGINT:
        assert process.returncode == 130
        *lines, last = said.splitlines()
        assert last == "tuccl: interrupted", "it does not continue where it stopped"
        assert all(line.startswith(("sketches: ", "still running")) for line in lines)
    gone, alive = psutil.wait_procs(workers, timeout=20)
    assert (len(gone), alive) == (2, [])


def _spawned(pid: int) -> list[psutil.Process]:
    """Both workers of a command, once they work."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = psutil.Process(pid).children()
        busy = [child for child in children if child.cpu_times().user > 0.6]
        if len(busy) == 2:
            return busy
        time.sleep(0.05)
    raise TimeoutError("the workers did not start")
