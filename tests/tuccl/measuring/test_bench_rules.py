"""scripts/bench/bench_rules.py and its sweep, over stand-ins of CUDA, NCCL and executor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import bench_rules
import pytest
import runtime_sweep
from kernel_schedules import kernel_schedules
from measuring_job import JobError
from measuring_site import Site, step
from random_calls import Rule, rule_by
from runtime_sweep import best_rules, executor_variables, sweep, with_ranges, write_rules

from tests.tuccl.engines.nccl_stand_ins import StandIns
from tuccl.lookup_tables.bundles.bundle import load_bundle
from tuccl.programs.compiler import pattern_in
from tuccl.programs.layout import Pattern

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
    bundle, report = tmp_path / "swept.tuccl", tmp_path / "report.json"
    words = ["--executor", stand_ins.executor, "--bundle", bundle, "--to", "2K", "--json", report]
    words += ["--operations", "all_gather"]
    assert run(stand_ins, monkeypatch, *words) == 0
    entries = load_bundle(bundle).entries
    assert entries[0].key.min_bytes == 1
    assert {entry.key.operation.value for entry in entries} == {"all_gather"}
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
    grid = [
        rule(K, operation="all_gather", pattern="direct", protocol=protocol)
        for protocol in ("LL", "Simple")
    ]
    monkeypatch.setattr(runtime_sweep, "grid", lambda *_: grid)
    site = Site(tmp_path, stand_ins.libraries, str(stand_ins.nccl), 2, 60, {})
    rules, found = sweep(
        site, stand_ins.executor, [("all_gather", K), ("all_gather", 4 * K)], K, {}
    )
    assert [rule.line.partition(" (")[0] for rule in rules] == [
        "all_gather 1 1024 direct LL 8 256 0"
    ]
    assert [bool(row["us"]) for row in found] == [True, True, False]
    assert "NCCL would" in found[2]["error"]


def rule(
    size_bytes: int,
    nthreads: int = 256,
    *,
    operation: str = "all_reduce",
    pattern: str = "two_phase",
    protocol: str = "LL",
    min_bytes: int = 0,
) -> Rule:
    """By a kernel's schedule of two ranks, for one size unless it begins below."""
    schedule = kernel_schedules(2)[operation, pattern].content_hash
    sizes = min_bytes or size_bytes, size_bytes
    return rule_by((operation, pattern), schedule, sizes, protocol, (8, nthreads))


def sizes_of(rules: list[Rule]) -> list[tuple[int, int]]:
    return [(rule.choice.min_bytes, rule.choice.max_bytes) for rule in rules]


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
    assert sizes_of(rules) == [(1, 2 * K), (4 * K + 1, 8 * K)]
    assert [r.choice.config.nthreads for r in rules] == [512, 256]
    write_rules(tmp_path / "swept.tuccl", rules, 2)
    bundle = load_bundle(tmp_path / "swept.tuccl")
    assert [(e.key.min_bytes, e.key.max_bytes, e.schedule) for e in bundle.entries] == [
        (r.choice.min_bytes, r.choice.max_bytes, r.choice.config) for r in rules
    ]
    assert [pattern_in(stored.program) for stored in bundle.schedules] == [Pattern.TWO_PHASE]
    with pytest.raises(JobError, match="rules overlap"):
        write_rules(tmp_path / "swept.tuccl", [rules[1], rules[1]], 2)


def test_equal_neighbours_become_one_and_operations_do_not_mix() -> None:
    unranged = rule(K, operation="reduce_scatter", pattern="direct")
    ranged = with_ranges([rule(K), rule(2 * K), rule(4 * K, 512), unranged])
    assert [r.operation for r in ranged] == ["all_reduce", "all_reduce", "reduce_scatter"]
    assert sizes_of(ranged) == [(1, 2 * K), (2 * K + 1, 4 * K), (1, K)]


def test_how_ranks_meet_says_nothing_about_who_runs_a_call(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They meet by all_reduce, which the rules give to the executor."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    bundle = tmp_path / "swept.tuccl"
    write_rules(bundle, [rule(K, 512, operation="all_reduce", pattern="one_phase", min_bytes=1)], 2)
    site = Site(tmp_path, stand_ins.libraries, str(stand_ins.nccl), 2, 60, {})
    steps = [step(("all_gather", K), 1), step(("all_reduce", K), 1)]
    result = site.run(steps, executor_variables(stand_ins.executor, bundle), controlled=False)
    assert [outcome["by_executor"] for outcome in result.steps] == [False, True]
