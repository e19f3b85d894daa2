from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Estimator, Reference
from lookup_tables.table import Setting, Shape, Table
from tests.tuccl.reports.test_job_gains import held_as_a_whole
from tests.tuccl.tuned_tables import (
    AMD,
    FOUR_GPUS,
    NVIDIA,
    TWO_HOSTS,
    tuned,
)
from tuccl.measuring.records.record import NOT_RECORDED
from tuccl.reports.job_gains import job_gains
from tuccl.reports.report import (
    BesideComputation,
    ComparisonReport,
    Dropped,
    FloorReport,
    KeyReport,
    ProfileRatio,
    ProfileReport,
    Report,
    UnprovedGain,
    UntunedKey,
    VariableReport,
    WholeReport,
)
from tuccl.reports.tuning_result import TuningResult
from tuccl.views.terminal.table_display import print_table, summary_lines
from tuccl.workspace.runs import Run

CHOSEN = ProfileReport(
    profile={"NCCL_MIN_CTAS": "64"},
    speedup=1.066,
    operation=Collective.ALL_GATHER,
    size_bytes=4096,
    shape=FOUR_GPUS,
    ratio=0.9952,
    low=0.9917,
    high=0.9999,
    starts=5,
    holds=True,
)


UNBEATEN = KeyReport(
    operation=Collective.REDUCE_SCATTER, size_bytes=1 << 30, shape=FOUR_GPUS,
    min_bytes=1, max_bytes=1 << 30,
    stock_us=1234567.8, profile_default_us=987654.3, builtin=None, schedule=None, rejected=[],
    configs_tried=1, repeats_measured=1, converged=True, why="",
)  # fmt: skip


def test_a_key_without_entry_gains_by_a_profile_alone() -> None:
    """Without one both times are of the same call, and what they differ by is noise."""
    for profile, gain in (
        ({}, "is 1.000 times as fast"),
        ({"A": "1"}, "is 1.250 times as fast"),
    ):
        report = Report(version=1, backend="nccl", profile=profile, schedules={}, keys=[UNBEATEN])
        table = Table("machine", "1" * 16, (), (), profile)
        first = summary_lines(table, report, job_gains(table, report, has_executor=True))[0]
        assert gain in first


def test_values_that_the_budget_did_not_pay_for_are_named_with_one_that_would() -> None:
    report = Report(
        version=1, backend="nccl", profile={}, schedules={}, keys=[UNBEATEN],
        budget_s=200.0, measuring_s=195.0, untried_s=61.0,
        untried=[{"NCCL_A": "2"}, {"NCCL_B": "1", "NCCL_C": "1"}],
    )  # fmt: skip
    table = Table("machine", "1" * 16, (), (), report.profile)
    assert (
        "not tried, because --budget 200s is too short: NCCL_A=2, NCCL_B=1 NCCL_C=1; "
        "--budget 270s would be likely to try them"
    ) in summary_lines(table, report, job_gains(table, report, has_executor=True))


def test_further_variables_are_told_with_what_they_gain() -> None:
    tried = [
        VariableReport(value={"NCCL_A": "2"}, gain=1.2, low=1.1, starts=3, taken=True),
        VariableReport(value={"NCCL_B": "1"}, gain=1.001, low=0.99, starts=5, taken=False),
        VariableReport(value={"NCCL_D": "1"}, gain=1.3, low=1.01, starts=3, taken=False),
        VariableReport(value={"NCCL_C": "1"}, gain=0.998, low=None, starts=1, taken=False),
        VariableReport(value={"NCCL_C": "2"}, gain=1.004, low=None, starts=1, taken=False),
    ]
    report = Report(
        version=1, backend="nccl", profile={"NCCL_A": "2"}, schedules={}, keys=[UNBEATEN],
        variables=tried, base={"NCCL_IB_TC": "106"},
    )  # fmt: skip
    table = Table("machine", "1" * 16, (), (), report.profile)
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    at = lines.index("process profile: NCCL_A=2") + 1
    assert lines[at : at + 5] == [
        "NCCL_A=2 gains 1.200x over all keys, 1.100x at least (3 starts with and without it)",
        (
            "NCCL_B=1 is not set: it gains 1.001x over all keys, 0.990x at least "
            "(5 starts with and without it)"
        ),
        (
            "NCCL_D=1 is not set, though it gains 1.300x over all keys, 1.010x at least "
            "(3 starts with and without it)"
        ),
        (
            "2 other values of NCCL's variables tried in one start, "
            "the best NCCL_C=2 at 1.004x: see report.json"
        ),
        "stock NCCL here, and each job, has NCCL_IB_TC=106",
    ]


def test_a_budget_that_leaves_gains_unproved_says_what_a_longer_one_is_likely_to_bring() -> None:
    """Of two keys one was seen at 1.21: 1.1 over both. Two starts of 5 s, and 3 s of samples."""
    comparison = ComparisonReport(
        config="ring LL ch4", time_us=10.0, reference_us=12.1, ratio=1.21, lower_bound=0.95,
        samples=15, spread=0.01, upper_bound=1.5, confidence=0.99, reference=Reference.STOCK,
        estimator=Estimator.MEDIAN_OF_PAIRS, starts=1,
    )  # fmt: skip
    seen = UnprovedGain(
        config=comparison.config, gain=1.21, comparison=comparison, starts_needed=2, further_s=3.0,
        further_starts=2,
    )  # fmt: skip
    keys = [UNBEATEN, UNBEATEN.model_copy(update={"size_bytes": 1 << 29, "unproved": seen})]
    report = Report(
        version=1, backend="nccl", profile={}, schedules={}, keys=keys, measuring_s=198.0,
        budget_s=200.0, start_s=5.0,
    )  # fmt: skip
    table = Table("machine", "1" * 16, (), (), {})
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    assert (
        "1 key shows a gain not proved yet: --budget 220s would be likely to decide, 1.100 times "
        "faster in the mean over all keys if they hold"
    ) in lines
    assert report.model_copy(update={"keys": [UNBEATEN]}).longer_budget is None
    hardly = seen.model_copy(update={"gain": 1.0009})  # 1.00045 over both keys.
    keys[1] = keys[1].model_copy(update={"unproved": hardly})
    assert report.model_copy(update={"keys": keys}).longer_budget is None


def test_the_headline_of_a_measured_table_counts_the_executor_where_it_runs() -> None:
    table, report = tuned(FOUR_GPUS)
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    assert lines[0] == (
        "A job here is 2.828 times as fast as with stock NCCL (geometric mean of 4 keys, 1.414 "
        "without the executor): 2 run a TuCCL schedule, 1 runs a tuned NCCL setting, 1 stays as "
        "it is."
    )
    assert not [line for line in lines if line.startswith("Not included")]


@pytest.mark.parametrize(("model", "said"), [(AMD, "NVIDIA GPUs only"), (NVIDIA, "build-executor")])
def test_a_row_shows_what_a_job_runs_not_what_won(
    capsys: pytest.CaptureFixture[str], model: str, said: str
) -> None:
    table, report = tuned(FOUR_GPUS, model=model)
    print_table(table, report, job_gains(table, report, has_executor=False))
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if line.startswith(" all_reduce")]
    assert rows == [
        ["all_reduce", "1K", "16.0", "8.0", "2.00x", "ring", "LL", "ch4"],
        ["all_reduce", "2K", "16.0", "-", "-", "NCCL's", "own", "choice"],
        ["all_reduce", "4K", "16.0", "8.0", "2.00x", "ring", "LL", "ch4"],
        ["all_reduce", "8K", "16.0", "-", "-", "NCCL's", "own", "choice"],
    ]
    assert said in " ".join(shown.split())


def test_an_entry_that_no_job_runs_is_not_called_no_entry() -> None:
    """Two keys are left to NCCL here: one without an entry, one whose entry is a schedule."""
    table, report = tuned(FOUR_GPUS)
    lines = summary_lines(table, report, job_gains(table, report, has_executor=False))
    assert (
        "NCCL's own choice: no setting was faster beyond the noise, so 1 key has no entry; the "
        "entry of 1 key is a schedule that no job here runs"
    ) in lines
    with_it = summary_lines(table, report, job_gains(table, report, has_executor=True))
    unbeaten = "NCCL's own choice: no setting was faster beyond the noise, so 1 key has no entry"
    assert unbeaten in with_it


def test_a_key_whose_winner_is_left_out_is_not_called_unbeaten() -> None:
    late = UNBEATEN.model_copy(update={"left_out": ["ring is left out: late beside computation"]})
    report = Report(version=1, backend="nccl", profile={}, schedules={}, keys=[late])
    table = Table("machine", "1" * 16, (), (), {})
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    assert "NCCL's own choice: what won at 1 key is left out" in lines
    assert "left out at 1 key: ring is left out: late beside computation" in lines


def test_rows_of_a_table_with_schedules_fit_into_100_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, report = tuned(FOUR_GPUS)
    print_table(table, report, job_gains(table, report, has_executor=True))
    rows = [row for row in capsys.readouterr().out.splitlines() if row.startswith(" all_reduce")]
    assert len(rows) == 4
    assert rows[0].split() == [
        "all_reduce", "1K", "16.0", "4.0", "4.00x", "8.0", "two_phase", "LL", "ch8", "th512",
        "buf0",
    ]  # fmt: skip
    assert max(len(row.rstrip()) for row in rows) <= 100


def test_times_of_seconds_stand_whole_in_a_table_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(version=1, backend="nccl", profile={"A": "1"}, schedules={}, keys=[UNBEATEN])
    monkeypatch.setattr("tuccl.views.terminal.display._UNBOUNDED", 80)
    table = Table("machine", "1" * 16, (), (), {"A": "1"})
    print_table(table, report, job_gains(table, report, has_executor=True))
    row = next(line for line in capsys.readouterr().out.splitlines() if "reduce_scatter" in line)
    assert row.split()[1:5] == ["1G", "1234567.8", "987654.3", "1.25x"]
    assert len(row) <= 80


def test_a_key_below_the_slowest_one_of_the_floor_is_named() -> None:
    """A curve of the report has it at 0.945x, where the floor says 0.995x of those in turn."""
    slow = UNBEATEN.model_copy(update={"profile_default_us": UNBEATEN.stock_us / 0.945})
    floor = FloorReport(least=0.99, chosen=CHOSEN, forgone=[])
    report = Report(
        version=1, backend="nccl", profile={"A": "1"}, schedules={}, keys=[slow], floor=floor
    )
    table = Table("machine", "1" * 16, (), (), {"A": "1"})
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    first, second = (line for line in lines if "0.995x" in line or "0.945x" in line)
    assert first == (
        "The slowest key under the process profile, of those started in turn with stock NCCL: "
        "all_gather 4K at 0.995x (0.992 to 1.000, 5 starts of each)"
    )
    assert second == (
        "Lower in single starts at different times, which differ by themselves: reduce_scatter 1G "
        "at 0.945x (0.931 to 0.959)"
    )
    in_turn = slow.model_copy(
        update={"profile_ratio": ProfileRatio(ratio=0.996, low=0.99, high=1.0, starts=5)}
    )
    held = report.model_copy(update={"keys": [in_turn]})
    said = summary_lines(table, held, job_gains(table, held, has_executor=True))
    assert not [line for line in said if line.startswith("Lower in single starts")]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            {"beside": BesideComputation(ratio=0.927, low=0.91, high=0.94)},
            (
                "calls of 16 MB and more and a computation beside them, of twice their time, end "
                "0.927 times as fast as with stock NCCL (0.910 to 0.940)"
            ),
        ),
        (
            {"ratio": 1.28, "low": 0.97, "starts": 1},
            "--budget did not pay for the starts that decide on it",
        ),
    ],
)
def test_a_profile_that_is_faster_and_not_used_says_why(found: dict[str, Any], why: str) -> None:
    profile = CHOSEN.model_copy(update={"holds": False, "speedup": 1.03, **found})
    floor = FloorReport(least=0.99, chosen=None, forgone=[profile])
    report = Report(
        version=1, backend="nccl", profile={}, schedules={}, keys=[UNBEATEN], floor=floor
    )
    table = Table("machine", "1" * 16, (), (), {})
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    (said,) = (line for line in lines if line.startswith("Not used: "))
    assert said.endswith(f" is 1.030x faster on average, but {why}.")


def test_keys_are_told_apart_by_their_shape_where_there_are_several(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, report = tuned(TWO_HOSTS)
    node = [key.model_copy(update={"shape": FOUR_GPUS}) for key in report.keys]
    whole = [key.model_copy(update={"shape": TWO_HOSTS}) for key in report.keys]
    shapes = {"whole": TWO_HOSTS, "node": FOUR_GPUS}
    chosen = CHOSEN.model_copy(update={"shape": FOUR_GPUS})
    floor = FloorReport(least=0.99, chosen=chosen, forgone=[])
    several = report.model_copy(
        update={"keys": [*whole, *node], "shapes": shapes, "floor": floor, "weights": {"node": 2.0}}
    )
    gains = job_gains(table, several, has_executor=False)
    assert [gain.entry is None for gain in gains.keys] == [False] * 3 + [True] * 5
    print_table(table, several, gains)
    shown = capsys.readouterr().out
    rows = [line.split()[:3] for line in shown.splitlines() if " all_reduce " in line][:8]
    assert rows[0] == ["whole", "all_reduce", "1K"]
    assert rows[4] == ["node", "all_reduce", "1K"]
    assert "whole, 8 ranks on 2 node(s): " in shown
    assert "node, 4 ranks on 1 node(s): 1.000x over 4 keys" in shown
    assert "node all_gather 4K at 0.995x" in shown
    assert "(node counts 2)" in shown


def test_the_headline_of_a_record_is_of_the_machine_that_was_recorded(
    tmp_path: Path,
) -> None:
    """Its jobs have the executor, whether or not it is compiled here."""
    table, report = tuned(FOUR_GPUS)
    recorded = report.model_copy(update={"backend": "replay", "recorded_backend": "nccl,executor"})
    result = TuningResult(table, Run(tmp_path), recorded, already_done=True, has_executor=False)
    first, *_ = summary_lines(table, recorded, result.gains)
    assert first.startswith(
        "A job on the recorded machine is 2.828 times as fast as with stock NCCL (geometric mean "
        "of 4 keys, 1.414 without the executor): 2 run a TuCCL schedule"
    )
    alone = report.model_copy(update={"backend": "replay", "recorded_backend": "nccl"})
    result = TuningResult(table, Run(tmp_path), alone, already_done=True, has_executor=False)
    assert result.speedup == pytest.approx(4 ** (1 / 4))


def test_what_a_model_assumes_stands_beside_its_figures() -> None:
    table, report = tuned(FOUR_GPUS, "simulated")
    assumed = report.model_copy(update={"assumed": "Assumed and not measured: 10 Gbit/s."})
    gains = job_gains(table, assumed, has_executor=True)
    assert assumed.assumed in summary_lines(table, assumed, gains)
    assert gains.caveats[:2] == (gains.evidence.caveat, assumed.assumed)
    assert job_gains(table, report, has_executor=True).doubts == (gains.evidence.caveat,)


def test_keys_that_are_slower_with_the_whole_table_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, report = tuned(FOUR_GPUS)
    held = held_as_a_whole(report)
    print_table(table, held, job_gains(table, held, has_executor=True))
    shown = capsys.readouterr().out
    assert "These are times with the whole table loaded, in turn with stock NCCL: 2 rounds" in shown
    assert "without the executor is as the starts before showed it" in " ".join(shown.split())
    assert "Slower there than with stock NCCL: all_reduce 8K 0.800x (0.760 to 0.840)." in shown
    (row,) = (line.split() for line in shown.splitlines() if " 8K " in line and "own" in line)
    assert row[2:5] == ["16.0", "20.0", "0.80x"]
    keys = [held.keys[0].model_copy(update={"whole": None}), *held.keys[1:]]
    part = held.model_copy(update={"keys": keys})
    lines = summary_lines(table, part, job_gains(table, part, has_executor=True))
    assert any(line.startswith("Of 3 of 4 keys these are times") for line in lines)


def test_what_computation_and_calls_gain_together_is_told() -> None:
    table, report = tuned(FOUR_GPUS)
    held = held_as_a_whole(report)
    together = (
        BesideComputation(ratio=1.02, low=1.01, high=1.03),
        BesideComputation(ratio=0.99, low=0.98, high=1.01),
    )
    keys = [
        key.model_copy(update={"whole": key.whole.model_copy(update={"beside": beside})})
        for key, beside in zip(held.keys[:2], together, strict=True)
        if key.whole is not None
    ]
    held = held.model_copy(update={"keys": [*keys, *held.keys[2:]]})
    lines = summary_lines(table, held, job_gains(table, held, has_executor=True))
    # The square root of 1.02 * 0.99 is 1.0049.
    line = (
        "2 calls of 16M and more beside computation of twice their time: both end 1.005 times as "
        "fast as with stock NCCL (geometric mean), at worst 0.990 ("
    )
    assert any(each.startswith(line) for each in lines)


@pytest.mark.parametrize(
    ("whole", "line"),
    [
        ({}, "Not held as a whole against stock NCCL: the budget did not pay for it."),
        ({"failed": "no memory"}, "Not held as a whole against stock NCCL: no memory."),
        (
            {"failed": NOT_RECORDED},
            "Not held as a whole against stock NCCL: the record has no such",
        ),
        ({"dropped": Dropped.TABLE}, "The table is left empty: loading it cost calls more than it"),
        (
            {"dropped": Dropped.EXECUTOR, "rounds": 2},
            "The executor is left out: loading it cost other calls more",
        ),
        (
            {"dropped": Dropped.TABLE, "dropped_why": "another machine"},
            "The table is left empty: jobs do not run with it: another machine.",
        ),
    ],
)
def test_why_the_whole_table_was_not_held_or_not_kept_is_told(
    whole: dict[str, object], line: str
) -> None:
    table, report = tuned(FOUR_GPUS)
    empty = WholeReport(rounds=0, dropped=None, failed="", seconds=1.0)
    told = report.model_copy(update={"whole": empty.model_copy(update=whole)})
    lines = summary_lines(table, told, job_gains(table, told, has_executor=True))
    assert any(each.startswith(line) for each in lines)


def test_what_a_profile_costs_where_nothing_was_tuned_is_told() -> None:
    pair = Shape(2, 1, 2)
    untuned = [
        UntunedKey(
            operation=operation, size_bytes=size, shape=pair, ratio=ratio, low=ratio - 0.01,
            high=ratio + 0.01,
        )
        for operation, size, ratio in (
            (Collective.ALL_REDUCE, 65536, 1.02),
            (Collective.ALL_GATHER, 1024, 0.994),
        )
    ]  # fmt: skip
    refused = CHOSEN.model_copy(update={"shape": pair, "ratio": 0.96, "holds": False})
    floor = FloorReport(least=0.99, chosen=CHOSEN, forgone=[refused], untuned=untuned)
    report = Report(
        version=1, backend="nccl", profile={"A": "1"}, schedules={}, keys=[UNBEATEN], floor=floor
    )
    table = Table("machine", "1" * 16, (), (), report.profile)
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    assert (
        "Communicators that are not tuned have the profile's variables of processes, too "
        "(2 ranks on 1 node(s)): their slowest call is all_gather 1K of 2 ranks on 1 node(s) at "
        "0.994x (0.984 to 1.004)"
    ) in lines
    assert (
        "Not used: NCCL_MIN_CTAS=64 is 1.066x faster on average, but 2 ranks on 1 node(s), which "
        "is not tuned, all_gather 4K is at 0.960x (0.992 to 1.000, 5 starts of each), --floor is "
        "0.99."
    ) in lines


@pytest.mark.parametrize("executor", [True, False])
def test_what_the_executor_sets_on_communicators_is_told(*, executor: bool) -> None:
    table, report = tuned(FOUR_GPUS, profile={"NCCL_MIN_CTAS": "32", "NCCL_NTHREADS": "256"})
    settings = tuple(Setting(shape, "NCCL_MIN_CTAS") for shape in (Shape(2, 1, 2), FOUR_GPUS))
    table = replace(table, settings=settings)
    lines = summary_lines(table, report, job_gains(table, report, has_executor=executor))
    said = (
        "of it the executor sets NCCL_MIN_CTAS on communicators of 2 ranks on 1 node(s), "
        "4 ranks on 1 node(s) alone"
    )
    assert (said in lines) is executor
