"""scripts/bench_runtime.py with sweep and targets, over stand-ins of CUDA, NCCL and executor."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType
from typing import Any

import bench_runtime as script
import pytest
import runtime_sweep
import runtime_targets
from measuring_site import Site
from runtime_plot import draw
from runtime_sweep import best_rules, sweep, with_ranges, write_rules
from runtime_targets import GRAPH, PLAIN, Row, judge, totals

from tests.tuccl.engines.nccl_stand_ins import StandIns
from tuccl.engines.executor_library import Rule

K, M = 1 << 10, 1 << 20


@pytest.fixture
def bench_runtime(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    monkeypatch.setattr(script, "build_libraries", lambda _: stand_ins.libraries)
    return script


def run(
    bench_runtime: ModuleType, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, *words: object
) -> int:
    common = ["--nccl", stand_ins.nccl, "--gpus", 2, "--rounds", 2, "--launches", 1]
    monkeypatch.setattr(sys, "argv", ["bench_runtime.py", *map(str, (*common, *words))])
    result: int = bench_runtime.main()
    return result


def test_executor_and_stock_in_turn(
    bench_runtime: ModuleType,
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules = tmp_path / "rules.txt"
    rules.write_text(Rule("all_gather", 1, 2 * K, "direct", "LL", 8, 512).line + "\n")
    report, plot = tmp_path / "report.json", tmp_path / "plot.svg"
    words = ["--executor", stand_ins.executor, "--rules", rules, "--to", "2K"]
    words += ["--operations", "all_reduce", "all_gather", "--json", report, "--svg", plot]
    # The stand-in is NCCL again, so 1.6 times its speed is not reached.
    assert run(bench_runtime, stand_ins, monkeypatch, *words) == 1
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["checked_calls"] == len(found["rows"]) == 8
    taken = {(row["operation"], row["mode"]) for row in found["rows"] if row["by_executor"]}
    assert taken == {("all_gather", GRAPH), ("all_gather", PLAIN)}
    assert all(len(row["stock_us"]) == len(row["executor_us"]) == 2 for row in found["rows"])
    assert found["totals"]["graph all_gather"]["by_executor"] == 2
    assert ET.fromstring(plot.read_text()).tag.endswith("svg")  # noqa: S314 - our own
    assert "MISSED" in capsys.readouterr().out


def test_how_ranks_meet_says_nothing_about_who_runs_a_call(
    bench_runtime: ModuleType,
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They meet by all_reduce, which the rules give to the executor."""
    rules, report = tmp_path / "rules.txt", tmp_path / "report.json"
    rules.write_text(Rule("all_reduce", 1, K, "one_phase", "LL", 8, 512).line + "\n")
    words = ["--executor", stand_ins.executor, "--rules", rules, "--to", "1K", "--json", report]
    run(bench_runtime, stand_ins, monkeypatch, *words, "--operations", "all_gather")
    rows = json.loads(report.read_text())["rows"]
    assert [(row["mode"], row["by_executor"]) for row in rows] == [(GRAPH, False), (PLAIN, False)]


def test_variables_can_be_set_for_the_executors_processes_alone(
    bench_runtime: ModuleType,
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules, report = tmp_path / "rules.txt", tmp_path / "report.json"
    rules.write_text(Rule("all_gather", 1, K, "direct", "LL", 8, 512).line + "\n")
    words = ["--executor", stand_ins.executor, "--rules", rules, "--to", "1K", "--json", report]
    words += ["--operations", "all_gather", "--set"]
    # On a busy machine one of two equals may well be 1.6 times as fast as the other.
    monkeypatch.setattr(runtime_targets, "SMALL_SPEEDUP", 1e9)
    assert run(bench_runtime, stand_ins, monkeypatch, *words, "SOMETHING=a=b", "OTHER=") == 1
    assert json.loads(report.read_text())["set"] == ["SOMETHING=a=b", "OTHER="]
    assert run(bench_runtime, stand_ins, monkeypatch, *words, "STAND_IN_EXECUTOR_SPOILS=1") == 2
    assert "all_gather of 1024 bytes: rank" in capsys.readouterr().err
    for word in ("nonsense", "=1"):
        assert run(bench_runtime, stand_ins, monkeypatch, *words, word) == 2
        assert f"--set {word}: write NAME=VALUE" in capsys.readouterr().err


def test_what_is_missing_is_said(
    bench_runtime: ModuleType,
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(bench_runtime, stand_ins, monkeypatch, "--to", "1K") == 2
    assert "name --executor and --rules" in capsys.readouterr().err
    monkeypatch.setenv("STAND_IN_CORRUPTS", "all_gather")
    (tmp_path / "rules.txt").write_text("")
    words = ["--executor", stand_ins.executor, "--rules", tmp_path / "rules.txt", "--to", "1K"]
    assert run(bench_runtime, stand_ins, monkeypatch, *words, "--operations", "all_gather") == 2
    assert "all_gather of 1024 bytes: rank" in capsys.readouterr().err


def test_a_sweep_tells_what_ran_from_what_the_executor_left(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    monkeypatch.setattr(runtime_sweep, "WORTH", 1e9)
    grid = [Rule("all_gather", K, K, "direct", protocol, 4, 256) for protocol in ("LL", "Simple")]
    monkeypatch.setattr(runtime_sweep, "grid", lambda *_: grid)
    site = Site(tmp_path, stand_ins.libraries, str(stand_ins.nccl), 2, 60, {})
    rules, found = sweep(
        site, stand_ins.executor, [("all_gather", K), ("all_gather", 4 * K)], K, {}
    )
    assert [rule.line for rule in rules] == ["all_gather 1 1024 direct ll 4 256 0"]
    assert [bool(row["us"]) for row in found] == [True, True, False]
    assert "NCCL would" in found[2]["error"]


def rule(size_bytes: int, nthreads: int = 256) -> Rule:
    return Rule("all_reduce", size_bytes, size_bytes, "two_phase", "LL", 8, nthreads)


def test_rules_are_the_fastest_where_they_beat_nccl(tmp_path: Path) -> None:
    times: dict[int, list[tuple[Rule | None, float | None]]] = {
        K: [(None, 9.0), (rule(K), 4.0), (rule(K, 512), 3.0)],
        2 * K: [(None, 9.0), (rule(2 * K, 512), 3.0), (rule(2 * K), None)],
        4 * K: [(None, 9.0), (rule(4 * K), 8.95)],
        8 * K: [(None, 9.0), (rule(8 * K), 5.0)],
    }
    found = [
        {"key": ("all_reduce", size), "rule": each, "us": time_us}
        for size, rows in times.items()
        for each, time_us in rows
    ]
    rules = best_rules(found)
    assert [(r.min_bytes, r.max_bytes, r.nthreads) for r in rules] == [
        (1, 2 * K, 512),
        (4 * K + 1, 8 * K, 256),
    ]
    write_rules(tmp_path / "rules.txt", rules)
    assert (tmp_path / "rules.txt").read_text().splitlines()[1] == (
        "all_reduce 4097 8192 two_phase ll 8 256 0"
    )


def test_equal_neighbours_become_one_and_operations_do_not_mix() -> None:
    other = Rule("reduce_scatter", K, K, "direct", "LL", 8, 256)
    ranged = with_ranges([rule(K), rule(2 * K), rule(4 * K, 512), other])
    assert [(r.operation, r.min_bytes, r.max_bytes) for r in ranged] == [
        ("all_reduce", 1, 2 * K),
        ("all_reduce", 2 * K + 1, 4 * K),
        ("reduce_scatter", 1, K),
    ]


def row(operation: str, size_bytes: int, own_us: float, mode: str = GRAPH) -> Row:
    return Row(mode, operation, size_bytes, (9.0, 10.0, 11.0), (own_us,) * 3, True)


def test_targets_hold_the_figures_of_graphs_to_the_numbers() -> None:
    rows = [
        row("all_reduce", K, 3.1),
        row("all_gather", K, 6.5),
        row("all_gather", 64 * M, 10.05),
        row("alltoall", K, 20.0),
        row("all_reduce", K, 30.0, PLAIN),
    ]
    verdict = {target["target"]: target for target in judge(rows)}
    assert verdict["all_reduce 1K, us at most"]["holds"]
    assert not verdict["all_gather and reduce_scatter to 256K, least speedup"]["holds"]
    assert verdict["64M and more, least speedup"]["found"] == pytest.approx(10 / 10.05)
    assert verdict["64M and more, least speedup"]["holds"]
    assert verdict["all sizes, least speedup"]["holds"]
    sums = totals(rows)
    assert sums["graph"]["keys"] == 3
    assert sums["graph alltoall"]["worst"]["speedup"] == pytest.approx(0.5)
    assert sums["plain"]["geomean"] == pytest.approx(1 / 3)
    assert draw(rows).count("<circle") == 5
