"""Figures of keys: times with intervals, what a job runs, and what a shipped directory lacks."""

from dataclasses import replace

import pytest

from tests.tuccl.tuned_tables import MANY_GPUS
from tests.tuccl.views.page.reported import reported
from tuccl.reports.job_gains import Obstacle
from tuccl.reports.keys import Runner
from tuccl.views.page.keys import key_figures
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.tables import table_figures


def of_directory(found: ReportedTable) -> ReportedTable:
    """The same table as a directory of `tuccl ship` has it."""
    return replace(found, report=None)


def test_a_job_runs_schedules_settings_or_nccl() -> None:
    keys = key_figures(reported(), None)
    assert [key.runner for key in keys] == [
        Runner.EXECUTOR,
        Runner.EXECUTOR,
        Runner.PLUGIN,
        Runner.NCCL,
    ]
    assert [key.speedup for key in keys] == pytest.approx([4.0, 8.0, 2.0, 1.0])
    assert keys[0].runs == "two_phase LL ch8 th512 buf0"
    assert keys[0].without_executor is not None
    assert keys[0].without_executor.time_us == 8.0
    assert keys[3].without_executor is None


def test_bounds_of_a_gain_become_bounds_of_the_time() -> None:
    setting = key_figures(reported(), None)[2].job
    # 16 us over 8 us is 2, at least 1.5 and at most 2.2.
    assert (setting.low_us, setting.high_us) == pytest.approx((8.0 * 2 / 2.2, 8.0 * 2 / 1.5))
    # nccl-tests counts 2 (n - 1) / n for all_reduce.
    assert setting.busbw_gb_per_s == pytest.approx(1.5 * 4096e-3 / 8.0)


def test_a_schedule_that_no_job_runs_stands_apart() -> None:
    figures = table_figures(reported(MANY_GPUS), None)
    first = figures.keys[0]
    assert first.obstacle is Obstacle.TOO_MANY_GPUS
    assert (first.runner, first.job.time_us) == (Runner.PLUGIN, 8.0)
    assert first.schedule is not None
    assert (first.schedule.time_us, first.schedule_speedup) == (4.0, 4.0)
    # 2, 1, 2 and 1 in a job, 4, 8, 2 and 1 with all schedules.
    assert figures.speedup == pytest.approx(4 ** (1 / 4))
    assert figures.speedup_with_all_schedules == pytest.approx(64 ** (1 / 4))


def test_a_shipped_directory_has_the_keys_with_an_entry() -> None:
    figures = table_figures(of_directory(reported()), None)
    assert figures.shipped
    assert [key.speedup for key in figures.keys] == pytest.approx([4.0, 8.0, 2.0])
    winner = figures.keys[1].job
    assert (winner.low_us, winner.high_us) == pytest.approx((2.0 / 1.02, 2.0 / 0.98))
    assert "1.02" not in figures.keys[1].evidence
    assert "8.000x (7.840 to 8.160, 99 %), against stock NCCL" in figures.keys[1].evidence


def test_a_directory_without_the_executor_counts_no_schedules() -> None:
    found = of_directory(reported(has_executor=False))
    keys = table_figures(found, None).keys
    assert [key.runner for key in keys] == [Runner.PLUGIN, Runner.NCCL, Runner.PLUGIN]
    assert [key.speedup for key in keys] == pytest.approx([2.0, 1.0, 2.0])
    assert keys[1].obstacle is Obstacle.NOT_BUILT
