"""Entries of a table as a job runs them."""

from __future__ import annotations

import pytest

from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.entries import EntryFigures, entries_of
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import Obstacle
from tuccl.reports.keys import Runner
from tuccl.reports.tuning_result import TunedTable


def shown(evidence: Evidence, *, has_executor: bool, **profile: str) -> dict[int, EntryFigures]:
    table, _ = tuned(FOUR_GPUS, profile=profile)
    found = entries_of(table, evidence, has_executor=has_executor)
    return {entry.size_bytes: entry for entry in found}


@pytest.mark.parametrize(
    ("evidence", "has_executor", "reason"),
    [
        (Evidence.MODELLED, True, Obstacle.NOT_MEASURED),
        (Evidence.MEASURED, False, Obstacle.NOT_BUILT),
    ],
)
def test_a_schedule_that_no_job_runs_stands_apart(
    evidence: Evidence, has_executor: bool, reason: Obstacle
) -> None:
    """The job runs ring LL, twice as fast as stock NCCL; the schedule would be 4 times as fast."""
    entry = shown(evidence, has_executor=has_executor)[1024]
    assert (entry.runner, entry.runs, entry.table_us) == (Runner.PLUGIN, "ring LL ch4", 8.0)
    assert entry.gain is not None
    assert (entry.gain.ratio, entry.gain.low) == (2.0, None)
    assert entry.apart is not None
    assert (entry.apart.time_us, entry.apart.speedup, entry.apart.reason) == (4.0, 4.0, reason)


def test_without_a_setting_beside_the_schedule_nccl_chooses() -> None:
    alone = shown(Evidence.MEASURED, has_executor=False)[2048]
    assert (alone.runner, alone.table_us) == (Runner.NCCL, 16.0)
    profiled = shown(Evidence.MEASURED, has_executor=False, NCCL_NTHREADS="256")[2048]
    assert (profiled.runner, profiled.table_us, profiled.gain) == (Runner.PROFILE, None, None)


def test_a_schedule_that_runs_has_the_bounds_of_its_comparison() -> None:
    """It is 2.00 times as fast as the setting beside it, 1.96 to 2.04."""
    entry = shown(Evidence.MEASURED, has_executor=True)[1024]
    assert (entry.runner, entry.table_us, entry.apart) == (Runner.EXECUTOR, 4.0, None)
    assert entry.gain is not None
    assert entry.gain.ratio == 4.0
    assert entry.gain.low == pytest.approx(3.92)
    assert entry.gain.high == pytest.approx(4.08)


def test_the_frame_of_a_table_has_what_its_jobs_run() -> None:
    table, _ = tuned(FOUR_GPUS)
    frame = TunedTable(table, has_executor=False).frame
    assert list(frame["table_us"]) == [8.0, 16.0, 8.0]
    assert list(TunedTable(table, has_executor=True).frame["table_us"]) == [4.0, 2.0, 8.0]
