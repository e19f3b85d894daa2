"""Results of a bench: findings, runners, the second table over the first, and its lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import Shape, Table
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.bench.shipped_tables import TWO_RANKS, M, placed_pairs
from tests.tuccl.tuned_tables import tuned
from tuccl.measuring.engines.job_processes import STOCK
from tuccl.reports.json_form import json_of, result_from
from tuccl.reports.keys import Gain, Runner
from tuccl.runtime.executor_library import PRELOAD_VARIABLE
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.result import BenchResult, Shortfall, bench_result
from tuccl.shipping.bench.rounds import BenchTimes
from tuccl.views.terminal.bench_display import bench_lines

SIZES = (1024, 2048, 4096, 8192)
TASKS = [Task(Collective.ALL_REDUCE, size, TWO_RANKS) for size in SIZES]
"""Schedule with built-in, schedule alone, built-in, nothing."""
STOCK_US = (16.0, 16.16, 15.84)


def shipped(
    name: str = "tables/a", *, executor: bool = True, profile: dict[str, str] | None = None
) -> ShippedTable:
    """As `tuned` says: gains of 4 and 8 by schedules, of 2 by built-ins."""
    table, _ = tuned(TWO_RANKS, profile=profile)
    variables = {PRELOAD_VARIABLE: "/x/libtuccl-executor.so"} if executor else {}
    bundle = read_bundle(bundle_bytes(table), name)
    return ShippedTable(name, variables, Path(name), bundle, table)


def measured(tables: dict[str, tuple[float, ...]], runner: str = "executor") -> BenchTimes:
    """Stock takes 16 us; each table so many times less, a little more in every second round."""
    times_us = {STOCK.name: {task: list(STOCK_US) for task in TASKS}}
    for name, gains in tables.items():
        times_us[name] = {
            task: [
                stock / gain * noise for stock, noise in zip(STOCK_US, (1, 1.01, 1), strict=True)
            ]
            for task, gain in zip(TASKS, gains, strict=True)
        }
    ran = {task: runner if task.size_bytes < 4096 else "nccl" for task in TASKS}
    return BenchTimes(times_us, dict.fromkeys(tables, ran), "NCCL 2.28.9", 3, 12.0)


def result_of(
    *gains: float, table: ShippedTable | None = None, ran: str = "executor"
) -> BenchResult:
    table = table or shipped()
    return bench_result(measured({table.name: gains}, ran), [table], TWO_RANKS, Timing())


def test_a_table_that_keeps_its_promises_has_no_findings() -> None:
    result = result_of(4.0, 8.0, 2.0, 1.0)
    (outcome,) = result.tables
    assert [key.runner for key in outcome.keys] == [
        Runner.EXECUTOR, Runner.EXECUTOR, Runner.PLUGIN, Runner.NCCL,
    ]  # fmt: skip
    promised = [key.promised for key in outcome.keys]
    assert promised[0] == Gain(4.0, None, None), "held against its built-in setting"
    assert promised[1:] == [Gain(8.0, 7.84, 8.16), Gain(2.0, 1.96, 2.04), None]
    assert [round(key.gain.ratio, 1) for key in outcome.keys] == [4.0, 8.0, 2.0, 1.0]
    assert not result.has_findings
    assert result.comparison is None
    text = "\n".join(bench_lines(result, 100))
    assert "promised for 3 of these keys: 4.000x; here 3.987x" in text
    assert "slower than stock NCCL, beyond the noise: no key" in text


def test_communicators_of_a_placement_are_named_by_gpus() -> None:
    table = Table("test", "test", (), (), placements=tuple(placed_pairs((8,), (4,))))
    bundle = read_bundle(bundle_bytes(table), "a")
    tables = [ShippedTable(name, {}, Path(name), bundle, table) for name in ("a", "b")]
    keys = [Task(Collective.ALL_GATHER, 2 * M, TWO_RANKS, Placement(n, (0, 1))) for n in (1, 2)]
    times = {STOCK.name: (16.0, 16.0), "a": (10.66, 16.0), "b": (8.0, 8.0)}
    times_us = {
        name: {key: [us, us * 1.001] for key, us in zip(keys, own, strict=True)}
        for name, own in times.items()
    }
    ran = dict.fromkeys(keys, "nccl")
    found = BenchTimes(times_us, {"a": ran, "b": ran}, "NCCL 2.28.9", 2, 1.0)
    result = bench_result(found, tables, Shape(4, 1, 4), Timing())
    assert [key.finding for key in result.tables[0].keys] == [None, Shortfall.SLOWER_THAN_PROMISED]
    lines = bench_lines(result, 120)
    pairs = "of 2 ranks on 1 node(s), like gpu0 and gpu"
    assert [line for line in lines if line.startswith("#")] == [
        f"# all_gather {pairs}{n}" for n in (1, 2, 1, 2)
    ]
    short = next(line for line in lines if line.startswith("slower than the table promised: "))
    assert short.startswith(f"slower than the table promised: all_gather 2M {pairs}2, 1.000x ")
    document = check("bench", json.dumps(json_of(result)))
    for listed in (document["tables"][0]["keys"], document["comparison"]["keys"]):
        assert [key["placement"] for key in listed] == ["gpu0 and gpu1", "gpu0 and gpu2"]


def test_a_loss_and_a_broken_promise_are_findings_only_beyond_the_noise() -> None:
    found = [key.finding for key in result_of(3.0, 7.9, 2.0, 0.9).tables[0].keys]
    assert found == [Shortfall.SLOWER_THAN_PROMISED, None, None, Shortfall.SLOWER_THAN_STOCK]
    result = result_of(4.0, 8.0, 2.0, 0.995)
    assert result.tables[0].keys[3].gain.ratio < 1.0
    assert not result.has_findings, "half a per cent is within the noise"


def test_a_key_that_is_slow_in_one_start_is_told_and_hides_no_other() -> None:
    found = measured({"tables/a": (4.0, 8.0, 2.0, 0.9)})
    # Seen on GPUs: twice as fast in two starts, fifteen times slower in the third.
    found.times_us["tables/a"][TASKS[1]] = [2.0, 240.0, 2.0]
    result = bench_result(found, [shipped()], TWO_RANKS, Timing())
    keys = result.tables[0].keys
    assert [key.has_slow_start for key in keys] == [False, True, False, False]
    assert keys[1].round_gains == (8.0, 16.16 / 240.0, 15.84 / 2.0)
    assert keys[1].finding is None, "three starts cannot tell how often"
    assert keys[3].finding is Shortfall.SLOWER_THAN_STOCK
    lines = bench_lines(result, 120)
    assert "far slower in one start than in others: all_reduce 2K, 8.000x, 0.067x, 7.920x" in lines
    row = next(line for line in lines if line.startswith("   2K "))
    assert "±>100" in row
    check("bench", json.dumps(json_of(result)))


def test_what_the_executor_did_not_take_is_told_and_held_to_its_promise() -> None:
    result = result_of(2.0, 1.0, 2.0, 1.0, ran="nccl")
    (outcome,) = result.tables
    assert [key.runner for key in outcome.keys[:2]] == [Runner.PLUGIN, Runner.NCCL]
    assert [key.finding for key in outcome.keys[:2]] == [Shortfall.SLOWER_THAN_PROMISED] * 2
    lines = bench_lines(result, 100)
    assert lines[-1] == (
        "left to NCCL by the executor, though the table has schedules: all_reduce 1K, all_reduce 2K"
    )


def test_without_the_executor_a_table_promises_what_the_plugin_gets() -> None:
    table = shipped(executor=False, profile={"NCCL_MIN_CTAS": "32"})
    (outcome,) = result_of(2.0, 1.0, 2.0, 1.0, table=table, ran="nccl").tables
    assert [key.promised and key.promised.ratio for key in outcome.keys] == [2.0, None, 2.0, None]
    assert [key.runner for key in outcome.keys] == [
        Runner.PLUGIN, Runner.PROFILE, Runner.PLUGIN, Runner.PROFILE,
    ]  # fmt: skip


def test_a_parquet_file_of_another_bundle_promises_nothing() -> None:
    table = shipped()
    same, _ = tuned(TWO_RANKS)
    later = Table(
        "machine", same.fingerprint, same.gpu_models,
        tuple(replace(entry, default_time_us=15.0) for entry in same.entries),
        {}, same.schedules,
    )  # fmt: skip
    stated = table.stated(TASKS[0])
    assert stated is not None
    assert stated.gain.ratio == 4.0
    assert replace(table, table=later).stated(TASKS[0]) is None
    assert replace(table, table=None).stated(TASKS[0]) is None
    between = Task(Collective.ALL_REDUCE, 1500, TWO_RANKS)
    assert table.entry(between) is not None
    assert table.stated(between) is None, "measured at 1K"


@pytest.fixture
def two() -> tuple[BenchResult, BenchTimes]:
    """Two tables, of which the second is faster at the first two sizes and slower at the third."""
    tables = [shipped("tables/a"), shipped("tables/b")]
    times = measured({"tables/a": (4.0, 8.0, 2.0, 1.0), "tables/b": (6.0, 12.0, 1.5, 1.0)})
    return bench_result(times, tables, TWO_RANKS, Timing()), times


def test_two_tables_are_held_against_stock_and_against_each_other(
    two: tuple[BenchResult, BenchTimes],
) -> None:
    result, _ = two
    assert result.comparison is not None
    ratios = [key.gain.ratio for key in result.comparison.keys]
    assert ratios == pytest.approx([1.5, 1.5, 0.75, 1.0])
    assert result.comparison.mean.ratio == pytest.approx((1.5 * 1.5 * 0.75) ** 0.25)
    assert [table.place for table in result.tables] == ["tables/a", "tables/b"]
    assert result.tables[1].keys[2].finding is Shortfall.SLOWER_THAN_PROMISED
    lines = bench_lines(result, 100)
    assert lines[-5].endswith("  faster")
    assert lines[-3].endswith("  slower")
    assert lines[-1].startswith("tables/b against tables/a: 1.14")


def test_rows_have_the_columns_of_nccl_tests_within_100(
    two: tuple[BenchResult, BenchTimes],
) -> None:
    result, _ = two
    lines = bench_lines(result, 100)
    assert max(map(len, lines)) <= 100
    row = next(line for line in lines if line.startswith("   4K"))
    assert row.split() == [
        "4K", "2048", "half", "sum", "16.00", "0.26", "0.26", "8.03", "0.51", "0.51",
        row.split()[10], "2.000", "ring", "LL", "ch4",
    ]  # fmt: skip
    assert row.split()[10].startswith("1.993±0.0")
    schedule = next(line for line in lines if line.startswith("   1K"))
    assert schedule.endswith("two_phase LL"), "wrapped"
    assert lines[lines.index(schedule) + 1].strip() == "ch8 th512 buf0"


def with_name_of_first_schedule(result: BenchResult, name: str) -> BenchResult:
    (table,) = result.tables
    first, *others = table.keys
    renamed = replace(first, runs=first.runs.replace("two_phase", name))
    return replace(result, tables=(replace(table, keys=(renamed, *others)),))


@pytest.mark.parametrize("columns", [80, 100, 120, 10_000])
def test_no_word_of_what_runs_is_cut(columns: int) -> None:
    result = with_name_of_first_schedule(result_of(4.0, 8.0, 2.0, 1.0), "all_pairs_one_phase")
    lines = bench_lines(result, columns)
    (row,) = [number for number, line in enumerate(lines) if line.startswith("   1K")]
    words = " ".join(lines[row : row + 2]).split()
    assert "all_pairs_one_phase" in words
    if columns == 100:
        assert lines[row + 1].endswith(" all_pairs_one_phase LL ch8 th512 buf0")
        assert len(lines[row + 1]) == 100, "beneath the row, since it does not fit beside it"
    if columns == 10_000:
        assert lines[row].endswith(" all_pairs_one_phase LL ch8 th512 buf0"), "in one line"


def test_json_is_what_the_schema_says(two: tuple[BenchResult, BenchTimes]) -> None:
    document = check("bench", json.dumps(json_of(two[0])))
    first, second = document["tables"]
    assert (first["place"], second["place"]) == ("tables/a", "tables/b")
    key = first["keys"][0]
    assert key["count"] == 512
    assert key["stock_rounds_us"] == list(STOCK_US)
    assert key["runs"] == "two_phase LL ch8 th512 buf0"
    assert second["keys"][2]["finding"] == "slower_than_promised"
    assert document["comparison"]["keys"][2]["gain"]["ratio"] == pytest.approx(0.75)
    check("bench", json.dumps(json_of(result_of(4.0, 8.0, 2.0, 1.0))))


def test_the_frame_has_the_keys_of_all_tables(two: tuple[BenchResult, BenchTimes]) -> None:
    frame = two[0].frame
    assert list(frame["place"]) == ["tables/a"] * 4 + ["tables/b"] * 4
    assert frame["gain"].iloc[4] == pytest.approx(6.0, rel=0.01)
    assert frame["promised"].isna().sum() == 2, "the last size has no entry"
    assert list(frame["runner"][:4]) == ["executor", "executor", "plugin", "nccl"]
    assert result_from(BenchResult, json.dumps(json_of(two[0]))) == two[0]


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_no_line_of_figures_is_broken(columns: int) -> None:
    lines = bench_lines(result_of(4.0, 8.0, 2.0, 0.7), columns)
    rows = [
        line for line in lines if line.startswith(("   1K", "   2K", "   4K", "   8K", " size"))
    ]
    assert len(rows) == 5
    assert max(map(len, rows)) <= columns
    assert ("redop" in rows[0]) == (columns >= 100)
    assert rows[0].endswith("said runs" if columns == 80 else "said what runs")


def test_a_tuners_file_has_its_own_heading_promises_nothing_and_is_no_finding() -> None:
    table = shipped()
    file = replace(shipped("site.csv", executor=False), table=None, is_baseline=True)
    found = bench_result(
        measured({"tables/a": (4.0, 8.0, 2.0, 1.0), "site.csv": (0.5, 0.5, 0.5, 0.5)}),
        [table, file],
        TWO_RANKS,
        Timing(),
    )
    assert [key.finding for key in found.tables[1].keys] == [Shortfall.SLOWER_THAN_STOCK] * 4
    assert not found.has_findings
    lines = bench_lines(found, 200)
    at = next(n for n, line in enumerate(lines) if line.startswith("site.csv: process profile"))
    assert lines[at + 1].split("  ")[-1].strip() == "with the baseline"
    assert "promised" not in " ".join(lines[at:])
    assert any(line.startswith("site.csv against tables/a: 0.1") for line in lines)
