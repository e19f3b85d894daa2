"""The gain of a workload's step in a bench, measured against predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.bench.shipped_tables import TWO_RANKS
from tests.tuccl.shipping.bench.test_result import STOCK_US, measured, shipped
from tests.tuccl.workloads.made_workloads import call, workload, written
from tuccl.errors import UsageError
from tuccl.measuring.records.record_file import write_record
from tuccl.reports.json_form import json_of
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import read_shipped_table
from tuccl.shipping.bench.result import BenchResult, bench_result
from tuccl.shipping.bench.rounds import BenchTimes
from tuccl.shipping.bench.step import benched_calls, step_outcome
from tuccl.views.terminal.bench_display import bench_lines
from tuccl.workloads.workload import NotTuned, Workload

ALL_REDUCE = Collective.ALL_REDUCE
JOB = workload(
    call(ALL_REDUCE, 1024, 3.0, ranks=2),
    call(ALL_REDUCE, 8192, 1.0, ranks=2),
    not_tuned=(NotTuned(operation="send", calls_per_step=1.0, bytes_per_step=11264.0),),
)
"""A gain of 4 for three calls and of 1 for one: 64 us and 28 us where stock NCCL takes 16 us."""


def benched(*gains: float, job: Workload = JOB) -> tuple[BenchResult, BenchTimes]:
    table, times = shipped(), measured({"tables/a": gains})
    calls = benched_calls(job, TWO_RANKS, [table])
    return bench_result(times, [table], TWO_RANKS, Timing(), calls), times


def test_a_step_is_the_sum_of_its_calls_in_each_round() -> None:
    result, _ = benched(4.0, 8.0, 2.0, 1.0)
    step = result.tables[0].step
    assert step is not None
    assert step.stock_us == pytest.approx([4 * stock for stock in STOCK_US])
    noise = (1, 1.01, 1)
    assert step.table_us == pytest.approx(
        [stock * (3 / 4 + 1) * more for stock, more in zip(STOCK_US, noise, strict=True)]
    )
    assert step.gain.ratio == pytest.approx(64.0 / 28.0, rel=0.005)
    assert step.gain.low < 64.0 / 28.0 < step.gain.high
    assert step.predicted is not None
    assert step.predicted.ratio == pytest.approx(64.0 / 28.0)
    assert step.predicted.low is None
    assert not step.short
    text = "\n".join(bench_lines(result, 500))
    assert "a step of this workload: 64.0 us of communication with stock NCCL, 28.1 us with" in text
    assert "; predicted 2.286x; 50.0 % of its bytes are of operations that TuCCL does" in text
    document = check("bench", json.dumps(json_of(result)))
    (table,) = document["tables"]
    assert table["step"]["predicted"]["ratio"] == pytest.approx(64.0 / 28.0)
    assert table["step"]["untuned_share"] == 0.5
    assert [each["calls"] for each in table["step"]["left_out"]] == ["send"]


def test_a_step_that_gains_less_than_the_table_states_is_told() -> None:
    result, _ = benched(3.0, 8.0, 2.0, 1.0)
    assert result.tables[0].step is not None
    assert result.tables[0].step.short
    assert "more than it gains beyond the noise" in "\n".join(bench_lines(result, 500))


def test_without_a_workload_there_is_no_step() -> None:
    table = shipped()
    times = measured({"tables/a": (4.0, 8.0, 2.0, 1.0)})
    result = bench_result(times, [table], TWO_RANKS, Timing())
    assert result.tables[0].step is None
    assert "a step of" not in "\n".join(bench_lines(result, 500))


def test_alltoall_is_timed_where_a_table_has_it_and_calls_that_fit_nothing_are_refused() -> None:
    job = workload(call(Collective.ALLTOALL, 1024, 1.0, ranks=2), call(ALL_REDUCE, 8, 1.0, ranks=2))
    calls = benched_calls(job, TWO_RANKS, [shipped()])
    assert [key.task.operation for key in calls.keys] == [ALL_REDUCE]
    assert "no table here has entries for it" in calls.left_out_notes[0]
    with pytest.raises(UsageError, match="none of its calls fits the ranks here"):
        benched_calls(JOB, Shape(3, 1, 3), [shipped()])


@pytest.mark.long
def test_a_shipped_table_predicts_what_it_was_tuned_for(run_inside: Run, tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    job = workload(call(ALL_REDUCE, 4096, 3.0), call(ALL_REDUCE, 65536, 1.0))
    written(tmp_path / "job.json", job)
    run_inside("init", "--records", "r.parquet", "--workload", "job.json")
    assert run_inside("ship", "shipped").returncode == 0
    table = read_shipped_table(tmp_path / "shipped", "shipped")
    four = Shape(4, 1, 4)
    stock = {Task(ALL_REDUCE, size, four): [20.0, 20.2] for size in (4096, 65536)}
    own = {task: [10.0, 10.0] for task in stock}
    found = step_outcome(benched_calls(job, four, [table]), table, stock, own)
    assert found.predicted is not None
    assert found.predicted.low is not None
    assert found.predicted.high is not None
    assert found.predicted.ratio == pytest.approx(2.0, rel=0.01)
    assert found.predicted.low < found.predicted.ratio < found.predicted.high
    assert not found.short
    more = workload(call(ALL_REDUCE, 4096, 4.0))
    further = step_outcome(benched_calls(more, four, [table]), table, stock, own)
    assert further.predicted is not None
    assert further.predicted.low is None, "put together from the keys' own"


def test_what_cannot_be_meant_is_one_line(run_inside: Run, tmp_path: Path) -> None:
    job = written(tmp_path / "job.json", JOB)
    done = run_inside("bench", "shipped", "--workload", job, "--sizes", "1K")
    assert done.returncode == 2
    assert (
        "--workload names operations and sizes: leave out --operations and --sizes" in done.stderr
    )
