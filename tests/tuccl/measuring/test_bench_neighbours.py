"""scripts/bench_neighbours.py: what a size pays for how others ran before it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import bench_neighbours as script
import pytest
from measuring_site import Site

from tests.tuccl.engines.nccl_stand_ins import StandIns

K, M = 1 << 10, 1 << 20


def test_some_sizes_are_forced_onto_one_channel() -> None:
    assert script.forced_call(("reduce_scatter", 16 * K)) == {}
    small = {"algorithm": "ring", "protocol": "LL", "nchannels": 1}
    assert script.forced_call(("reduce_scatter", 32 * K)) == small
    assert script.forced_call(("all_gather", 128 * K)) == small
    assert script.forced_call(("reduce_scatter", 512 * K)) == small | {"protocol": "Simple"}
    assert script.forced_call(("reduce_scatter", M)) == {}
    assert script.forced_call(("all_gather", 4 * M)) == small | {"protocol": "Simple"}
    assert script.forced_call(("all_gather", 8 * M)) == {}


def test_neighbours_are_held_against_both_walks_of_stock_and_its_second_against_its_first() -> None:
    key = ("reduce_scatter", M)
    times = [
        {script.STOCK: 8.0, script.AGAIN: 2.0, script.NEIGHBOURS: 5.0},
        {script.STOCK: 9.0, script.AGAIN: 9.0, script.NEIGHBOURS: 9.0},
    ]
    jobs = [{name: {key: math.log(us)} for name, us in job.items()} for job in times]
    (row,) = script.summarize([key], jobs)
    assert not row.forced
    assert row.stock_us == pytest.approx(6.0)
    ratio, error = row.gains[script.NEIGHBOURS]
    assert ratio == pytest.approx(math.sqrt(4.0 / 5.0))
    # Of two values the standard error is half their distance.
    assert error == pytest.approx(ratio * math.log(5.0 / 4.0) / 2.0)
    assert row.gains[script.AGAIN] == pytest.approx((2.0, 2.0 * math.log(4.0) / 2.0))


def test_walks_of_every_kind_are_each_first_and_the_first_turn_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    orders: list[list[str]] = []
    key = ("all_gather", M)

    def walks(
        _site: object, _keys: object, order: list[str], _launches: int
    ) -> list[dict[tuple[str, int], float]]:
        orders.append(list(order))
        return [{key: 100.0 if number < 3 else 4.0} for number in range(len(order))]

    monkeypatch.setattr(script, "run_walks", walks)
    site = Site(tmp_path, tmp_path, "", 2, 2, 60.0, {})
    jobs = script.run_jobs(site, [key], 3, 1, 0.0)
    assert len(jobs) == len(orders) == 2, "two at least, for an error"
    assert all(len(order) == 3 * 4 for order in orders)
    assert {order[at] for order in orders for at in (3, 6, 9)} == {
        script.STOCK,
        script.NEIGHBOURS,
        script.AGAIN,
    }
    assert all(value[key] == pytest.approx(math.log(4.0)) for job in jobs for value in job.values())


def test_it_runs_and_marks_what_was_forced(
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    monkeypatch.setenv("STAND_IN_SLOW_MS", "20")  # With one channel; else 2 to 4 for any call.
    monkeypatch.setattr(script, "build_libraries", lambda _: stand_ins.libraries)
    report = tmp_path / "report.json"
    words = ["--gpus", "2", "--nccl", str(stand_ins.nccl), "--from", "16K", "--to", "32K"]
    words += ["--turns", "1", "--launches", "1", "--seconds", "0", "--json", str(report)]
    monkeypatch.setattr(sys, "argv", ["bench_neighbours.py", *words])
    assert script.main() == 0
    document = json.loads(report.read_text())
    assert (document["ranks"], document["nodes"], document["jobs"]) == (2, 2, 2)
    rows = document["keys"]
    assert [(row["operation"], row["size_bytes"] // K, row["forced"]) for row in rows] == [
        ("reduce_scatter", 16, False),
        ("reduce_scatter", 32, True),
        ("all_gather", 16, False),
        ("all_gather", 32, True),
    ]
    assert all(row["gains"]["neighbours"][0] < 0.8 for row in rows if row["forced"])
    out = capsys.readouterr().out
    assert out.startswith("2 ranks on 2 nodes, 2 GPUs, ")
    assert out.count("  one channel\n") == 2
    assert "the 2 keys left to NCCL: geomean " in out
