"""The gains of a job count only schedules that this installation runs."""

import math

import pytest

from lookup_tables.table import Shape
from tests.tuccl.tuned_tables import (
    AMD,
    FOUR_GPUS,
    MANY_GPUS,
    NVIDIA,
    PHASED,
    TWO_HOSTS,
    tuned,
)
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import Obstacle, job_gains
from tuccl.reports.keys import Runner
from tuccl.reports.report import ProfileRatio, Report, WholeKey, WholeReport

PROFILE = {"NCCL_BUFFSIZE": "1048576"}


def test_on_one_host_with_the_executor_a_job_gets_the_schedules() -> None:
    gains = job_gains(*tuned(FOUR_GPUS), has_executor=True)
    assert [gain.runner for gain in gains.keys] == [
        Runner.EXECUTOR, Runner.EXECUTOR, Runner.PLUGIN, Runner.NCCL
    ]  # fmt: skip
    assert [gain.speedup for gain in gains.keys] == [4.0, 8.0, 2.0, 1.0]
    assert math.isclose(gains.speedup, 64 ** (1 / 4))
    assert math.isclose(gains.speedup_without_executor, 4 ** (1 / 4))
    assert not gains.obstacles
    assert gains.evidence is Evidence.MEASURED


def test_across_hosts_a_job_gets_the_schedules_of_phases_that_were_measured() -> None:
    gains = job_gains(*tuned(TWO_HOSTS, stored=PHASED), has_executor=True)
    assert [gain.speedup for gain in gains.keys] == [4.0, 8.0, 2.0, 1.0]
    assert gains.runners[Runner.EXECUTOR] == 2
    assert not gains.obstacles
    without = job_gains(*tuned(TWO_HOSTS, stored=PHASED), has_executor=False)
    assert without.obstacles == {Obstacle.NOT_BUILT: 2}
    modelled = job_gains(*tuned(TWO_HOSTS, "simulated", stored=PHASED), has_executor=True)
    assert modelled.obstacles == {Obstacle.NOT_MEASURED: 2}


@pytest.mark.parametrize(
    ("shape", "backend", "model", "has_executor", "obstacle"),
    [
        (TWO_HOSTS, "simulated", NVIDIA, True, Obstacle.ACROSS_HOSTS),
        (TWO_HOSTS, "nccl,executor", NVIDIA, True, Obstacle.ACROSS_HOSTS),
        (MANY_GPUS, "simulated", NVIDIA, True, Obstacle.TOO_MANY_GPUS),
        (FOUR_GPUS, "simulated", AMD, True, Obstacle.NOT_NVIDIA),
        (FOUR_GPUS, "simulated", NVIDIA, True, Obstacle.NOT_MEASURED),
        (FOUR_GPUS, "sockets", NVIDIA, True, Obstacle.NOT_MEASURED),
        (FOUR_GPUS, "nccl,executor", NVIDIA, False, Obstacle.NOT_BUILT),
    ],
)
def test_a_schedule_that_no_job_here_runs_is_listed_apart_with_its_reason(
    shape: Shape, backend: str, model: str, has_executor: bool, obstacle: Obstacle
) -> None:
    gains = job_gains(*tuned(shape, backend, model), has_executor=has_executor)
    assert gains.obstacles == {obstacle: 2}
    assert [gain.runner for gain in gains.keys] == [
        Runner.PLUGIN, Runner.NCCL, Runner.PLUGIN, Runner.NCCL
    ]  # fmt: skip
    assert math.isclose(gains.speedup, 4 ** (1 / 4))
    assert gains.speedup == gains.speedup_without_executor
    assert math.isclose(gains.speedup_with_all_schedules, 64 ** (1 / 4))


def test_without_an_entry_that_runs_a_job_has_nccl_under_the_process_profile() -> None:
    table, report = tuned(TWO_HOSTS, "simulated", profile=PROFILE)
    gains = job_gains(table, report, has_executor=False)
    assert gains.runners == {Runner.PLUGIN: 2, Runner.PROFILE: 2}
    assert [gain.table_us for gain in gains.keys] == [8.0, 12.8, 8.0, 12.8]
    assert [gain.speedup for gain in gains.keys] == [2.0, 1.25, 2.0, 1.25]


def test_a_machine_that_does_not_name_its_gpus_may_have_the_executor() -> None:
    table, report = tuned(FOUR_GPUS)
    unnamed = type(table)(
        table.topology_name, table.fingerprint, (), table.entries, {}, table.schedules
    )
    assert not job_gains(unnamed, report, has_executor=True).obstacles


def test_starts_in_turn_precede_times_of_different_starts() -> None:
    """The key without an entry: 16 us over 12.8 us in different starts, 0.98 in turn."""
    table, report = tuned(FOUR_GPUS, profile=PROFILE)
    assert job_gains(table, report, has_executor=True).keys[3].speedup == pytest.approx(1.25)
    in_turn = ProfileRatio(ratio=0.98, low=0.97, high=0.99, starts=3)
    keys = [key.model_copy(update={"profile_ratio": in_turn}) for key in report.keys]
    gain = job_gains(table, report.model_copy(update={"keys": keys}), has_executor=True)
    assert [key.runner for key in gain.keys][2:] == [Runner.PLUGIN, Runner.PROFILE]
    assert gain.keys[3].table_us == pytest.approx(16.0 / 0.98)
    assert [key.speedup for key in gain.keys] == pytest.approx([4.0, 8.0, 2.0, 0.98])


def held_as_a_whole(report: Report) -> Report:
    """The report, with the times of jobs that had loaded the whole table."""
    seen = ((32.0, 10.0, 3.2), (16.0, 2.5, 6.4), (16.0, 8.0, 2.0), (16.0, 20.0, 0.8))
    keys = [
        key.model_copy(
            update={
                "whole": WholeKey(
                    stock_us=stock,
                    table_us=own,
                    ratio=ratio,
                    low=0.95 * ratio,
                    high=1.05 * ratio,
                    rounds=2,
                )
            }
        )
        for key, (stock, own, ratio) in zip(report.keys, seen, strict=True)
    ]
    whole = WholeReport(rounds=2, dropped=None, failed="", seconds=12.4)
    return report.model_copy(update={"keys": keys, "whole": whole})


def test_what_jobs_with_the_whole_table_got_precedes_the_decisions() -> None:
    """Of the key that is left alone, too: 3.2 * 6.4 * 2 * 0.8 is 32.768."""
    table, report = tuned(FOUR_GPUS)
    held = held_as_a_whole(report)
    gains = job_gains(table, held, has_executor=True)
    assert [key.speedup for key in gains.keys] == [3.2, 6.4, 2.0, 0.8]
    assert gains.speedup == pytest.approx(32.768 ** (1 / 4))
    assert [(key.stock_us, key.table_us) for key in gains.keys][3] == (16.0, 20.0)
    # A built-in of half of stock NCCL's time, nothing, a built-in, nothing.
    assert [key.without_executor.time_us for key in gains.keys] == [16.0, 16.0, 8.0, 16.0]
    assert [key.size_bytes for key in gains.slower] == [8192]
    # Without the executor it is another job, which has not been timed.
    alone = job_gains(table, held, has_executor=False)
    assert [key.speedup for key in alone.keys] == [2.0, 1.0, 2.0, 1.0]
    assert not alone.slower
