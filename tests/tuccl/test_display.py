import pytest

from lookup_tables.table import Table
from tuccl.display import floor_lines, print_table, starts_lines, summary_lines
from tuccl.report import FloorReport, KeyReport, ProfileReport, Report

CHOSEN = ProfileReport(
    profile={"NCCL_MIN_NCHANNELS": "64"},
    speedup=1.066,
    operation="all_gather",
    size_bytes=4096,
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
    operation="reduce_scatter", size_bytes=1 << 30, min_bytes=1, max_bytes=1 << 30,
    stock_us=1234567.8, profile_default_us=987654.3, builtin=None, schedule=None, rejected=[],
    configs_tried=1, repeats_measured=1, converged=True, why="",
)  # fmt: skip


def test_a_key_without_entry_gains_by_a_profile_alone() -> None:
    """Without one both times are of the same call, and what they differ by is noise."""
    for profile, gain in (({}, "1.000x"), ({"A": "1"}, "1.250x")):
        report = Report(version=1, backend="nccl", profile=profile, schedules={}, keys=[UNBEATEN])
        first = summary_lines(Table("machine", "1" * 16, (), (), profile), report)[0]
        assert first == f"0 of 1 keys tuned; geometric mean over all keys: {gain}"


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


def test_where_nothing_keeps_to_the_floor_that_is_said() -> None:
    lines = floor_lines(FloorReport(least=0.99, chosen=OTHER, forgone=[OTHER] * 5))
    assert lines[0].startswith("no profile keeps to --floor 0.99; the safest leaves 0.974x")
    assert lines[-1] == "and 2 more: see report.json"


def test_without_a_floor_or_a_profile_there_is_nothing_to_say() -> None:
    assert floor_lines(None) == []
    assert floor_lines(FloorReport(least=0.99, chosen=None, forgone=[])) == []


def test_where_starts_differ_it_is_said_what_that_means_for_the_entries() -> None:
    assert starts_lines(None) == []
    assert "entries outlasted up to 5 starts" in starts_lines(5)[0]
    assert "some entries may gain nothing in a job" in starts_lines(0)[0]


def test_times_of_seconds_stand_whole_in_a_table_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(version=1, backend="nccl", profile={"A": "1"}, schedules={}, keys=[UNBEATEN])
    monkeypatch.setattr("tuccl.display._WIDTH", 80)
    print_table(Table("machine", "1" * 16, (), (), {"A": "1"}), report)
    row = next(line for line in capsys.readouterr().out.splitlines() if "reduce_scatter" in line)
    assert row.split("\u2502")[2:6] == [
        "   1G ", "  1234567.8 ", " 987654.3 ", "   1.25x "
    ]  # fmt: skip
    assert len(row) <= 80
