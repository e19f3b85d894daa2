"""The jobs of a watch: they start at the same time, and are timed in turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import psutil
import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, ship_entries
from tuccl.errors import MeasurementError
from tuccl.measuring.engines.job import Job
from tuccl.measuring.engines.job_processes import STOCK, Contender, JobProcesses
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import ShippedTable, read_shipped_table
from tuccl.shipping.watching.pair import Conditions, Pair
from tuccl.shipping.watching.spot_measurement import Spots
from tuccl.shipping.watching.spot_verdicts import promise_of

pytestmark = pytest.mark.long

SIZES = (512, 1024)
PAIR = Shape(2, 1, 2)


@pytest.fixture
def table(stand_ins: StandIns, tmp_path: Path) -> ShippedTable:
    entries = [all_gather_entry(8, 1e-3, size) for size in SIZES]
    return read_shipped_table(ship_entries(tmp_path / "shipped", stand_ins, *entries), "the table")


@pytest.fixture
def spots(table: ShippedTable) -> Spots:
    found = {}
    for size in SIZES:
        task = Task(Collective.ALL_GATHER, size, PAIR)
        promise = promise_of(table, task)
        assert promise is not None
        found[task] = promise
    return Spots(found, Timing(graph=False), 0.1)


def conditions(stand_ins: StandIns, table: Contender, *, one_at_a_time: bool) -> Conditions:
    own = {"PYTHONPATH": str(stand_ins.libraries), "STAND_IN_GPUS": "2"}
    environment = os.environ | stand_ins.variables | own
    return Conditions(2, environment, table, one_at_a_time)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened, in order: `stock joins, 4 processes run`, `stock is timed`."""
    seen: list[str] = []
    join, time_us = JobProcesses.join, Job.time_us

    def joins(job: JobProcesses) -> None:
        seen.append(f"{_name(job.contender)} joins, {workers()} processes run")
        join(job)

    def is_timed(job: Job, call: JobCall) -> float:
        seen.append(f"{_name(job._contender)} is timed")
        return time_us(job, call)

    monkeypatch.setattr(JobProcesses, "join", joins)
    monkeypatch.setattr(Job, "time_us", is_timed)
    return seen


def _name(contender: Contender) -> str:
    return "stock" if contender == STOCK else "table"


def workers() -> int:
    """Count the workers that this process has; other tests may have left other children."""
    children = psutil.Process().children()
    return sum(any("tuccl.crew.worker" in word for word in own.cmdline()) for own in children)


@contextmanager
def no_worker_left() -> Iterator[None]:
    yield
    assert workers() == 0


def test_both_jobs_start_before_either_is_timed_and_passes_alternate(
    stand_ins: StandIns, table: ShippedTable, spots: Spots, events: list[str]
) -> None:
    how = conditions(stand_ins, table, one_at_a_time=False)
    with no_worker_left():
        keys = spots.measure(Pair(how), how)
    assert [key.suspicion for key in keys] == [None, None]
    assert events[:2] == ["stock joins, 4 processes run", "table joins, 4 processes run"]
    turns = [(who, len(list(times))) for who, times in groupby(events[2:])]
    assert turns[:4] == [("stock is timed", 2), ("table is timed", 2)] * 2
    assert len(turns) in range(6, 12)


def test_gpus_that_take_one_process_have_one_job_after_the_other(
    stand_ins: StandIns, table: ShippedTable, spots: Spots, events: list[str]
) -> None:
    how = conditions(stand_ins, table, one_at_a_time=True)
    with no_worker_left():
        spots.measure(Pair(how), how)
    order = [who for who, _ in groupby(events)]
    assert order == [
        "stock joins, 2 processes run", "stock is timed",
        "table joins, 2 processes run", "table is timed",
    ]  # fmt: skip


def test_a_job_that_does_not_start_leaves_none_of_the_other_behind(
    stand_ins: StandIns, table: ShippedTable, spots: Spots
) -> None:
    broken = Contender("the table", {**table.variables, "TUCCL_NCCL_LIBRARY": "/nowhere"})
    how = conditions(stand_ins, broken, one_at_a_time=False)
    with no_worker_left(), pytest.raises(MeasurementError, match=r"the table: the job does not"):
        spots.measure(Pair(how), how)
