import pytest

from lookup_tables.table import Operation, Table
from tests.tuccl.tuned_tables import (
    AMD,
    FOUR_GPUS,
    NVIDIA,
    TWO_HOSTS,
    tuned,
)
from tuccl.reports.job_gains import job_gains
from tuccl.reports.report import (
    FloorReport,
    KeyReport,
    LossWithoutExecutor,
    ProfileRatio,
    ProfileReport,
    Report,
)
from tuccl.views.terminal.table_display import floor_lines, print_table, starts_lines, summary_lines

CHOSEN = ProfileReport(
    profile={"NCCL_MIN_NCHANNELS": "64"},
    speedup=1.066,
    operation=Operation.ALL_GATHER,
    size_bytes=4096,
    shape=FOUR_GPUS,
    ratio=0.9952,
    low=0.9917,
    high=0.9999,
    starts=5,
    holds=True,
)
OTHER = CHOSEN.model_copy(
    update={
        "profile": {"NCCL_BUFFSIZE": "1048576", "NCCL_MIN_NCHANNELS": "64"},
        "speedup": 1.078,
        "ratio": 0.974,
        "low": 0.97,
        "high": 0.978,
        "starts": 1,
        "holds": False,
    }
)


UNBEATEN = KeyReport(
    operation=Operation.REDUCE_SCATTER, size_bytes=1 << 30, shape=FOUR_GPUS,
    min_bytes=1, max_bytes=1 << 30,
    stock_us=1234567.8, profile_default_us=987654.3, builtin=None, schedule=None, rejected=[],
    configs_tried=1, repeats_measured=1, converged=True, why="",
)  # fmt: skip


def test_a_key_without_entry_gains_by_a_profile_alone() -> None:
    """Without one both times are of the same call, and what they differ by is noise."""
    for profile, gain in (
        ({}, "1.000x, the geometric mean over 1 keys: 1 left to NCCL"),
        ({"A": "1"}, "1.250x, the geometric mean over 1 keys: 1 by the process profile alone"),
    ):
        report = Report(version=1, backend="nccl", profile=profile, schedules={}, keys=[UNBEATEN])
        table = Table("machine", "1" * 16, (), (), profile)
        first = summary_lines(table, report, job_gains(table, report, has_executor=True))[0]
        assert first == f"a job here gets {gain}"


def test_the_headline_of_a_measured_table_counts_the_executor_where_it_runs() -> None:
    table, report = tuned(FOUR_GPUS)
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    assert lines[0] == (
        "a job here gets 2.828x, the geometric mean over 4 keys: 2 by schedules on the executor, "
        "1 by a setting that the plugin chooses, 1 left to NCCL; 1.414x without the executor"
    )
    assert not [line for line in lines if line.startswith("apart")]


def test_schedules_across_hosts_stand_apart_below_a_modelled_headline() -> None:
    table, report = tuned(TWO_HOSTS, "simulated")
    lines = summary_lines(table, report, job_gains(table, report, has_executor=True))
    assert lines[0].startswith("a job here is expected to get 1.414x, ")
    assert lines[1].startswith("Computed by a model, not measured")
    assert lines[2] == (
        "apart from that, modelled and not run by a job here: schedules, 2.828x over all keys "
        "(all_reduce 4.00x to 8.00x); no release of TuCCL runs schedules of this kind across "
        "hosts: `tuccl init --backend nccl,executor` on the GPUs searches those that it runs"
    )


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


def test_a_line_says_what_starts_the_rows_of_the_profile_rest_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, report = tuned(TWO_HOSTS, profile={"NCCL_MIN_NCHANNELS": "64"})

    def shown(report: Report) -> str:
        print_table(table, report, job_gains(table, report, has_executor=False))
        return capsys.readouterr().out

    def rows(text: str) -> list[list[str]]:
        found = [line.split() for line in text.splitlines() if line.startswith(" all_reduce")]
        return [row[1:] for row in found if "profile" in " ".join(row)]

    alone = shown(report)
    profile = ["NCCL", "under", "the", "profile"]
    assert rows(alone) == [[size, "16.0", "12.8", "1.25x", *profile] for size in ("2K", "8K")]
    assert "in turn" not in alone
    in_turn = ProfileRatio(ratio=0.9952, low=0.9917, high=0.9999, starts=3)
    keys = [*report.keys[:3], report.keys[3].model_copy(update={"profile_ratio": in_turn})]
    beside = shown(report.model_copy(update={"keys": keys}))
    assert rows(beside) == [
        ["2K", "16.0", "12.8", "1.25x", *profile],
        ["8K", "16.0", "16.1", "1.00x", *profile],
    ]
    assert (
        "1 row of these: mean of 3 starts of each in turn; "
        "the others: one start of each, at different times"
    ) in " ".join(beside.split())


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


def test_what_was_ruled_out_is_named_with_its_key_and_what_it_would_have_gained() -> None:
    chosen, ruled_out = floor_lines(FloorReport(least=0.99, chosen=CHOSEN, forgone=[OTHER]))
    assert chosen == (
        "the process profile leaves every key at least 0.995x at all_gather 4K "
        "(0.992 to 1.000, 5 starts of each)"
    )
    assert ruled_out == (
        "ruled out by --floor 0.99: NCCL_BUFFSIZE=1048576 NCCL_MIN_NCHANNELS=64, 1.078x on "
        "average, leaves 0.974x at all_gather 4K (0.970 to 0.978, one start)"
    )


def test_what_was_forgone_for_a_safer_profile_is_not_called_ruled_out() -> None:
    doubtful = OTHER.model_copy(update={"ratio": 0.993, "holds": True, "starts": 3})
    _, forgone = floor_lines(FloorReport(least=0.99, chosen=CHOSEN, forgone=[doubtful]))
    assert forgone.startswith("less clear of --floor 0.99: NCCL_BUFFSIZE=1048576")
    assert "leaves 0.993x at all_gather 4K" in forgone


def test_what_a_job_without_the_executor_pays_for_the_profile_is_said() -> None:
    """1 / 0.987 = 1.0132."""
    loss = LossWithoutExecutor(
        operation=Operation.ALL_REDUCE,
        size_bytes=1024,
        shape=FOUR_GPUS,
        ratio=0.987,
        low=0.984,
        high=0.99,
        starts=3,
    )
    chosen = CHOSEN.model_copy(update={"schedule": "0a", "ratio": 1.31})
    report = FloorReport(least=0.99, chosen=chosen, forgone=[], without_executor=loss)
    by_schedule, without = floor_lines(report)
    assert "at least 1.310x at all_gather 4K by a schedule (0.992" in by_schedule
    assert without == (
        "without the executor, all_reduce 1K takes 1.3 % longer under this profile "
        "(0.987x, 0.984 to 0.990, 3 starts of each)"
    )


def test_where_nothing_keeps_to_the_floor_that_is_said() -> None:
    lines = floor_lines(FloorReport(least=0.99, chosen=OTHER, forgone=[OTHER] * 5))
    assert lines[0].startswith("no profile keeps to --floor 0.99; the safest leaves 0.974x")
    assert lines[-1] == "and 2 more: see report.json"


def test_without_a_floor_or_a_profile_there_is_nothing_to_say() -> None:
    assert floor_lines(None) == []
    assert floor_lines(FloorReport(least=0.99, chosen=None, forgone=[])) == []


def test_where_starts_differ_it_is_said_what_that_means_for_the_entries() -> None:
    assert starts_lines(None) == []
    assert "entries are confirmed over up to 5 restarts" in starts_lines(5)[0]
    assert "only gains beyond that are entries" in starts_lines(0)[0]


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
    assert "0.995x at node all_gather 4K" in shown
    assert "(node counts 2)" in shown
