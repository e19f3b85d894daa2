"""A job in turn without and with a table, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuccl.shipping.bench.test_result import shipped
from tuccl.reports.step_gain import StepSummary
from tuccl.shipping.bench.job_figure import RunFigure, TimeUnit
from tuccl.shipping.bench.job_runs import JobLogs, JobRuns, UserJob, Variant, bench_rounds
from tuccl.shipping.bench.own_job import (
    WITH,
    WITHOUT,
    JobBenchResult,
    JobRound,
    JobRun,
    job_bench_result,
)
from tuccl.views.terminal.job_display import job_bench_lines

STEP = StepSummary(
    workload="0123456789abcdef",
    steps=None,
    stock_us=3000.0,
    table_us=1000.0,
    gain=3.0,
    low=2.9,
    high=3.1,
    confidence=0.95,
    untuned_share=0.0,
    left_out_share=0.0,
)
IN_MS = RunFigure(unit=TimeUnit.MS)


def outcome(
    pairs: list[tuple[float, float]], figure: RunFigure = IN_MS, step: StepSummary | None = STEP
) -> JobBenchResult:
    rounds = [JobRound(JobRun(without, 1.0), JobRun(own, 1.0)) for without, own in pairs]
    return job_bench_result(["job"], shipped(), figure, rounds, step, load_seen=True)


def test_the_first_of_a_round_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(_: JobRuns, number: int, variant: Variant, half: str) -> JobRun:
        started.append((number, variant.name, half))
        return JobRun(float(len(started)), 0.0)

    monkeypatch.setattr(JobRuns, "start", start)
    runs = JobRuns(UserJob(("job",), RunFigure()), JobLogs(tmp_path), tmp_path, 3, print)
    rounds = bench_rounds(runs, Variant("with it", {}))
    names = [(1, WITHOUT), (1, WITH), (2, WITH), (2, WITHOUT), (3, WITHOUT), (3, WITH)]
    assert [(number, half) for number, _, half in started] == names
    assert [name for _, name, half in started if half == WITH] == ["with it"] * 3
    figures = [(each.without.figure, each.with_table.figure) for each in rounds]
    assert figures == [(1.0, 2.0), (4.0, 3.0), (5.0, 6.0)]


def test_a_gain_is_of_runs_of_the_same_round() -> None:
    """A machine that slows down by half meanwhile shows no other gain."""
    found = outcome([(10.0, 8.0), (20.0, 16.0), (15.0, 12.0)])
    assert found.gain.ratio == pytest.approx(1.25)
    assert (found.gain.low, found.gain.high) == pytest.approx((1.25, 1.25))
    assert not found.slower


def test_a_throughput_gains_where_it_rises() -> None:
    found = outcome([(100.0, 120.0), (50.0, 60.0)], RunFigure(higher_is_better=True))
    assert found.gain.ratio == pytest.approx(1.2)
    assert found.saving is None


def test_a_loss_beyond_the_noise_is_told() -> None:
    assert outcome([(10.0, 11.0), (10.0, 11.001), (10.0, 11.0)]).slower
    assert not outcome([(10.0, 11.0), (10.0, 9.0), (10.0, 11.0)]).slower


def test_what_a_step_saves_is_held_against_what_was_predicted() -> None:
    """A step of 10 ms that is 1.25 times as fast takes 2 ms less, as the collectives alone do."""
    saving = outcome([(10.0, 8.0), (10.0, 8.0)]).saving
    assert saving is not None
    assert saving.workload == STEP.workload
    assert (saving.predicted_us, saving.step_us) == pytest.approx((2000.0, 10000.0))
    assert (saving.measured_us, saving.low_us, saving.high_us) == pytest.approx((2000.0,) * 3)


@pytest.mark.parametrize(
    ("figure", "step"), [(replace(IN_MS, unit=None), STEP), (IN_MS, None)], ids=["unit", "workload"]
)
def test_without_a_unit_or_a_workload_nothing_is_predicted(
    figure: RunFigure, step: StepSummary | None
) -> None:
    assert outcome([(10.0, 8.0), (10.0, 8.0)], figure, step).saving is None


def test_a_gain_within_the_noise_does_not_lead_its_line() -> None:
    """Rounds of 0.5, 1 and 2 times as fast say nothing of the job, and nothing of a step."""
    result = outcome([(10.0, 20.0), (10.0, 10.0), (10.0, 5.0)])
    *_, told, saved = job_bench_lines(result)
    gain = result.gain
    assert told == (
        "no difference beyond the noise: with the table the job is between "
        f"{gain.low:.3f} and {gain.high:.3f} times as fast (95 % interval around 1.000); more "
        "rounds narrow it"
    )
    assert saved.startswith("saved of a step of 10000 us: nothing beyond the noise measured (")
    *_, faster, _ = job_bench_lines(outcome([(10.0, 8.0), (10.0, 8.0)]))
    assert faster.startswith("the job is 1.250 times as fast with the table")
