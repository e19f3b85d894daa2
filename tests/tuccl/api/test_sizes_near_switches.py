"""Sizes that a run adds where NCCL's own choice changes: in its record, its replay, a run after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tuccl.api.tuning import tune
from tuccl.options.run_options import RunOptions
from tuccl.reports.explanation import explain
from tuccl.reports.tuning_result import TuningResult
from tuccl.views.terminal.explanation_display import explanation_lines

pytestmark = pytest.mark.long

OPTIONS = RunOptions(
    topology="shipped:h200-4gpu", schedules=False, shapes="whole", operations="all_reduce",
    min_size="1M", max_size="64M",
)  # fmt: skip
CHANGE = "from ring LL128 to ring Simple between 8704K and 9M"


def added(result: TuningResult) -> dict[int, str]:
    return {key.size_bytes: key.added for key in result.report.keys if key.added}


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, told: list[str]) -> TuningResult:
    folder = tmp_path_factory.mktemp("near")
    return tune(
        options=OPTIONS, workspace=folder / "w", record=folder / "r.parquet", tell=told.append
    )


def test_both_sides_of_a_switch_are_keys_and_a_line_says_so(
    tuned: TuningResult, told: list[str]
) -> None:
    # The model's estimates of ring LL128 and ring Simple cross between 8,704 KB and 9 MB.
    assert added(tuned) == {8704 << 10: CHANGE, 9 << 20: CHANGE}
    assert f"sizes added where NCCL's own choice changes: all_reduce {CHANGE}" in told
    assert len(tuned.report.keys) == 4 + 2


def test_a_step_that_is_given_adds_none(tmp_path: Path) -> None:
    result = tune(options=replace(OPTIONS, step=4), workspace=tmp_path)
    assert not added(result)
    assert len(result.report.keys) == 4


def test_a_call_that_is_left_to_nccl_between_two_entries_is_told_why(tuned: TuningResult) -> None:
    keys = [
        key.model_copy(update={"max_bytes": 5 << 20}) if key.size_bytes == 4 << 20 else key
        for key in tuned.report.keys
    ]
    result = replace(
        tuned,
        report=tuned.report.model_copy(update={"keys": keys}),
        table=replace(tuned.table, entries=()),
    )
    found = explain(result, Collective.ALL_REDUCE, 11 << 19, keys[0].shape)
    assert found.why == (
        "left to NCCL, whose own choice was faster between 4M and 8704K than the entries of both"
    )
    said = list(explanation_lines(found, result.report))
    assert said[0].endswith(f": {found.runs}")
    assert said[1:] == [f"  {found.why}"]


def test_a_run_that_continues_has_the_same_keys_and_table(
    tuned: TuningResult, tmp_path: Path
) -> None:
    tuned.run.table.rename(tmp_path / "table.parquet")
    again = tune(options=OPTIONS, workspace=tuned.run.table.parents[2])
    assert not again.already_done
    assert again.table == tuned.table
    assert added(again) == added(tuned)


def test_a_replay_has_the_keys_of_its_record_and_takes_its_steps(
    tuned: TuningResult, tmp_path: Path
) -> None:
    record = tuned.run.table.parents[3] / "r.parquet"
    told: list[str] = []
    options = RunOptions(records=str(record), schedules=False)
    replayed = tune(options=options, workspace=tmp_path, tell=told.append)
    assert "note: the recorded search is repeated step by step" in told
    assert added(replayed) == added(tuned)
    own = [(e.key.min_bytes, e.key.max_bytes, e.builtin, e.time_us) for e in tuned.table.entries]
    assert own == [
        (e.key.min_bytes, e.key.max_bytes, e.builtin, e.time_us) for e in replayed.table.entries
    ]
    smaller = tune(options=replace(options, max_size="4M"), workspace=tmp_path / "smaller")
    assert not added(smaller)
    assert [key.size_bytes for key in smaller.report.keys] == [1 << 20, 1 << 22]
