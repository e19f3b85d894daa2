"""scripts/bench/bench_rules.py and its sweep, over stand-ins of CUDA, NCCL and executor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import bench_rules
import pytest
import runtime_sweep
from measuring_site import Site, step
from runtime_sweep import best_rules, executor_variables, sweep, with_ranges, write_rules

from tests.tuccl.engines.nccl_stand_ins import StandIns
from tuccl.engines.executor_library import Rule

K, M = 1 << 10, 1 << 20


def run(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    monkeypatch.setattr(bench_rules, "build_libraries", lambda _: stand_ins.libraries)
    command = ["bench_rules.py", "--nccl", stand_ins.nccl, "--gpus", 2, *words]
    monkeypatch.setattr(sys, "argv", [str(word) for word in command])
    return bench_rules.main()


def test_the_best_of_every_key_becomes_a_rule(
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runtime_sweep, "WORTH", 1e9)
    monkeypatch.setattr(runtime_sweep, "BLOCKS", (4,))
    rules, report = tmp_path / "rules.txt", tmp_path / "report.json"
    words = ["--executor", stand_ins.executor, "--rules", rules, "--to", "2K", "--json", report]
    words += ["--operations", "all_gather"]
    assert run(stand_ins, monkeypatch, *words) == 0
    first = rules.read_text().split()
    assert first[:4] == ["all_gather", "1", first[2], "direct"]
    rows: list[dict[str, Any]] = json.loads(report.read_text())
    assert {tuple(row["key"]) for row in rows} == {("all_gather", K), ("all_gather", 2 * K)}
    assert all(row["us"] > 0 for row in rows)
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in told[1:]] == ["all_gather 1024", "all_gather 2048"]
    assert run(stand_ins, monkeypatch, *words, "--gpus", "5") == 2
    assert capsys.readouterr().err.startswith("bench_rules.py: the executor runs nothing: ")


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


def test_how_ranks_meet_says_nothing_about_who_runs_a_call(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They meet by all_reduce, which the rules give to the executor."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    rules = tmp_path / "rules.txt"
    rules.write_text(Rule("all_reduce", 1, K, "one_phase", "LL", 8, 512).line + "\n")
    site = Site(tmp_path, stand_ins.libraries, str(stand_ins.nccl), 2, 60, {})
    steps = [step(("all_gather", K), 1), step(("all_reduce", K), 1)]
    result = site.run(steps, executor_variables(stand_ins.executor, rules), controlled=False)
    assert [outcome["by_executor"] for outcome in result.steps] == [False, True]
