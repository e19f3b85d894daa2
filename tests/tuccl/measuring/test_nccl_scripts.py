"""scripts/check_measuring.py and scripts/bench_nccl.py over stand-ins of CUDA and NCCL."""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import bench_nccl
import check_measuring
import measuring_site
import nccl_variants
import pytest
from measuring_job import start_job
from nccl_summary import standard_error
from nccl_variants import CONTROL, control, from_environment, stock
from shipped_table import stated_speedups

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    Operation,
    ScheduleConfig,
    Shape,
    StoredSchedule,
    Table,
)
from tests.runtime.conftest import ROOT
from tests.tuccl.engines.nccl_stand_ins import JobError, StandIns
from tuccl.engines.gpu_sharing import NoMpsError
from tuccl.runtime import PLUGIN_NAME
from tuccl.shipping.environment_file import bundle_name, environment_file


@pytest.fixture
def scripts(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/bench_nccl.py and what it imports, with the stand-ins in its environment."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    for script in (bench_nccl, check_measuring):
        # Compiled once for all tests.
        monkeypatch.setattr(script, "build_libraries", lambda _: stand_ins.libraries)

    return bench_nccl


def ship(directory: Path, plugin: Path, ranks: int) -> Path:
    """A table as `tuccl ship` writes it: all_gather of 1 KB on one channel, which is slow."""
    key = Key(Operation.ALL_GATHER, 1024, 1024, Shape(ranks, 1, ranks), "test")
    config = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, 1)
    entry = Entry(key, 1024, config, None, 1.0, 1.0, 2.0, 5, 0.0, "", "test")
    return ship_table(directory, plugin, Table("test", "test", (), (entry,)))


def ship_table(directory: Path, plugin: Path, table: Table) -> Path:
    """What `tuccl ship` makes of a table."""
    bundle = bundle_bytes(table)
    directory.mkdir()
    shutil.copy(plugin, directory / PLUGIN_NAME)
    (directory / bundle_name(bundle_crc(bundle))).write_bytes(bundle)
    (directory / "table.parquet").write_bytes(table_to_parquet_bytes(table))
    text = environment_file(table, directory, bundle_crc(bundle))
    (directory / "tuccl.env").write_text(text, encoding="utf-8")
    return directory


def in_another_process(stand_ins: StandIns, module: str, call: str) -> Callable[[int], int]:
    """A question to the driver from where the stand-in for it can be loaded."""

    def ask(gpus: int = 1) -> int:
        program = (
            "from tuccl.errors import TucclError\n"
            f"from {module} import {call}\n"
            f"try: print({call}({gpus}) or 0)\n"
            "except TucclError as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | stand_ins.variables | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        told = done.stdout.strip()
        if told.isdecimal():
            return int(told)
        raise NoMpsError(told)

    return ask


@pytest.fixture
def bench(
    scripts: ModuleType, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """scripts/bench_nccl.py on two GPUs with these words; its exit code."""

    def run(*words: object) -> int:
        common = ["--nccl", str(stand_ins.nccl), "--gpus", "2", "--from", "1K"]
        common += ["--operations", "all_gather", "--rounds", "2", "--launches", "1"]
        monkeypatch.setattr(sys, "argv", ["bench_nccl.py", *common, *map(str, words)])
        result: int = scripts.main()
        return result

    return run


@pytest.fixture
def slow_table(stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped for two ranks; the stand-in pauses with one channel, which its only key asks for."""
    monkeypatch.setenv("STAND_IN_SLOW_MS", "20")  # A busy machine takes 2 to 4 for any call.
    return ship(tmp_path / "shipped", stand_ins.plugin, 2)


def test_bench_times_what_a_job_would_see(
    bench: Callable[..., int],
    slow_table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(nccl_variants, "PROFILES", ({},))
    monkeypatch.setattr(nccl_variants, "CHANNELS", (2,))
    report = tmp_path / "report.json"
    words = ("--to", "2K", "--table", slow_table, "--static", "NCCL_NTHREADS=128", "--exhaustive")
    assert bench(*words, "--json", report) == 0
    summary: dict[str, Any] = json.loads(report.read_text())
    assert list(summary["variants"]) == [
        "stock",
        "table",
        "static",
        "exhaustive",
        "stock again",
    ]
    small, large = summary["keys"]
    assert min(small["table"]["rounds_us"]) > 20_000
    assert small["table"]["speedup"] < 0.8
    assert summary["variants"]["table"]["worst"]["key"] == "all_gather 1K"
    assert summary["variants"]["stock"]["geomean"] == 1.0
    assert large["size_bytes"] == 2048
    assert (small["has_entry"], large["has_entry"]) == (True, False)
    found = summary["entries"]
    assert found["keys_with_entry"] == 1
    assert found["worst_with_entry"] == summary["variants"]["table"]["worst"]
    assert found["worst_without"] == {
        "key": "all_gather 2K",
        "speedup": large["table"]["speedup"],
        "standard_error": large["table"]["standard_error"],
    }
    assert found["worst_of_control"] == summary["variants"]["stock again"]["worst"]
    out = capsys.readouterr().out
    assert "static: geomean" in out
    assert "NCCL_NTHREADS=128" in out
    assert "stock and stock again differ by " in out
    assert "the table has an entry for 1 of 2 keys; worst ratio of these 0." in out
    assert "(all_gather 2K), of stock again " in out
    first, second = [line for line in out.splitlines() if " us " in line][-2:]
    assert first.endswith("  entry 2.000")
    assert "entry" not in second
    measured = small["table"]["speedup"]
    stated = {"keys": 1, "geomean": 2.0, "measured_geomean": pytest.approx(measured)}
    assert (small["stated_speedup"], summary["stated"]) == (2.0, stated)
    assert "stated_speedup" not in large
    assert f"(behind `entry`, 1 of the keys): geomean 2.0000, here {measured:.4f}\n" in out


def test_only_keys_with_an_entry_are_timed_by_pinned_ranks(
    bench: Callable[..., int],
    stand_ins: StandIns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = ship(tmp_path / "shipped", stand_ins.plugin, 2)
    report = tmp_path / "report.json"
    words = (
        "--to",
        "4K",
        "--no-static",
        "--entries-only",
        "--pin",
        "--seconds",
        0,
        "--json",
        report,
    )
    assert bench(*words, "--table", shipped) == 0
    summary: dict[str, Any] = json.loads(report.read_text())
    assert [row["size_bytes"] for row in summary["keys"]] == [1024]
    assert summary["pinned"] is True
    assert summary["rounds"] == len(summary["keys"][0]["table"]["rounds_us"]) == 1
    assert summary["entries"]["worst_without"] is None
    assert bench(*words) == 2
    assert "no entry for these keys" in capsys.readouterr().err


def test_a_speedup_is_over_both_runs_of_stock_in_a_round(
    scripts: ModuleType, stand_ins: StandIns
) -> None:
    key = ("all_gather", 1024)
    variants = [stock([key]), control([key]), from_environment("static", {}, [key])]
    times = {
        "stock": [{key: 8.0}, {key: 10.0}],
        CONTROL: [{key: 2.0}, {key: 10.0}],
        "static": [{key: 4.0}, {key: 5.0}],
    }
    summary = scripts.summarize([key], variants, times)
    (row,) = summary["keys"]
    assert row["static"]["speedup"] == pytest.approx((1.0 + 2.0) / 2)
    assert row[CONTROL]["speedup"] == pytest.approx((4.0 + 1.0) / 2)
    assert row["stock"]["speedup"] == 1.0
    # Logarithms 0 and log 2: of two values the mean's standard error is half their distance.
    of_mean = math.log(2.0) / 2.0
    expected = 1.5 * math.sqrt(math.pi / 2.0) * of_mean
    assert row["static"]["standard_error"] == pytest.approx(expected)
    assert row["stock"]["standard_error"] == 0.0
    # Stock's ratios are 4 and 1, whose logarithms are log 4 apart.
    assert summary["noise"] == pytest.approx(math.log(4.0) / math.sqrt(2.0))
    once = {name: rounds[:1] for name, rounds in times.items()}
    assert scripts.summarize([key], variants, once)["noise"] is None


def test_what_is_known_of_a_key_counts_starts_and_not_their_passes(scripts: ModuleType) -> None:
    assert standard_error([1.1]) is None
    assert standard_error([1.1, 1.2, 1.3], passes=3) is None
    # Means of logarithms 0 and log 2 again, whatever the passes of a start differ by.
    by_start = standard_error([0.5, 2.0, 1.0, 4.0], passes=2)
    assert by_start == pytest.approx(1.5 * math.sqrt(math.pi / 2.0) * math.log(2.0) / 2.0)


def test_operations_can_have_jobs_of_their_own(
    bench: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[set[str]] = []

    def noted(
        folder: Path, ranks: int, steps: list[dict[str, Any]], *rest: Any, **more: Any
    ) -> Any:
        jobs.append({step["operation"] for step in steps})
        return start_job(folder, ranks, steps, *rest, **more)

    monkeypatch.setattr(measuring_site, "start_job", noted)
    report = tmp_path / "report.json"
    words: tuple[str, ...]
    words = ("--operations", "all_gather", "all_reduce", "--to", "2K", "--no-static", "--apart")
    words = (*words, "--rounds", "1", "--json", str(report))
    assert bench(*words) == 0
    assert jobs == [{"all_gather"}, {"all_reduce"}] * 2, "of stock and of stock again"
    summary = json.loads(report.read_text())
    assert summary["apart"] is True
    assert [(row["operation"], row["size_bytes"]) for row in summary["keys"]] == [
        (operation, size) for operation in ("all_gather", "all_reduce") for size in (1024, 2048)
    ]


def test_variants_side_by_side_take_turns_and_each_has_its_own_times(
    bench: Callable[..., int],
    slow_table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = tmp_path / "report.json"
    words = ("--to", "2K", "--table", slow_table, "--no-static", "--turns", "3", "--json", report)
    assert bench(*words) == 0
    summary = json.loads(report.read_text())
    assert summary["turns"] == 3
    assert summary["rounds"] == 2 * 3
    small, large = summary["keys"]
    assert [len(small[name]["rounds_us"]) for name in summary["variants"]] == [6, 6, 6]
    assert min(small["table"]["rounds_us"]) > 20_000
    assert max(statistics.median(row["stock"]["rounds_us"]) for row in (small, large)) < 20_000
    assert statistics.median(large["table"]["rounds_us"]) < 20_000
    with pytest.raises(SystemExit):
        bench(*words, "--exhaustive")
    assert "what takes turns runs the same jobs" in capsys.readouterr().err


def test_operations_apart_take_turns_too_and_no_job_is_left_when_one_cannot_start(
    bench: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def noted(folder: Path, *rest: Any, **more: Any) -> Any:
        if len(started) == 5:
            raise JobError("rank 1 cannot be started")
        started.append(start_job(folder, *rest, **more))
        return started[-1]

    monkeypatch.setattr(measuring_site, "start_job", noted)
    report = tmp_path / "report.json"
    words: tuple[str, ...]
    words = ("--operations", "all_gather", "all_reduce", "--to", "1K", "--no-static", "--apart")
    words = (*words, "--turns", "2", "--rounds", "1", "--json", str(report))
    assert bench(*words) == 0
    rows = json.loads(report.read_text())["keys"]
    assert [row["operation"] for row in rows] == ["all_gather", "all_reduce"]
    assert [job.folder.name for job in started] == [
        "job 0 of stock",
        "job 1 of stock again",
        "job 2 of stock",
        "job 3 of stock again",
    ]
    assert bench(*words) == 2
    assert all(process.returncode is not None for job in started for process in job.processes)


def test_faked_nodes_that_share_gpus_need_mps(
    bench: Callable[..., int],
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {
        "count_gpus": "tuccl.engines.nccl_environment",
        "require_mps": "tuccl.engines.gpu_sharing",
    }
    for call, module in asked.items():
        monkeypatch.setattr(measuring_site, call, in_another_process(stand_ins, module, call))
    report = tmp_path / "report.json"
    words = ("--to", "1K", "--no-static", "--share-gpus", "--rounds", "1", "--json", report)
    with pytest.raises(SystemExit):
        bench(*words)
    assert "--share-gpus is for --fake-nodes" in capsys.readouterr().err
    assert bench(*words, "--fake-nodes", "2") == 2
    assert "MPS does not share GPU 0" in capsys.readouterr().err
    monkeypatch.setenv("STAND_IN_MPS", "2")
    monkeypatch.setenv("STAND_IN_GPUS", "2")
    assert bench(*words, "--fake-nodes", "2") == 0
    summary = json.loads(report.read_text())
    assert (summary["ranks"], summary["nodes"], summary["gpus"]) == (4, 2, 2)


def test_a_table_that_nccl_does_not_use_is_no_result(
    bench: Callable[..., int],
    stand_ins: StandIns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = ship(tmp_path / "shipped", stand_ins.plugin, ranks=4)
    words = ("--to", "1K", "--no-static", "--table", shipped)
    assert bench(*words) == 2
    assert "has no entries for 2 ranks" in capsys.readouterr().err
    assert bench(*words[:-1], tmp_path) == 2
    assert "`tuccl ship` writes it" in capsys.readouterr().err


def test_a_table_states_gains_of_tuned_sizes_by_what_runs_there(
    scripts: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = Shape(2, 1, 2)
    schedule = ScheduleConfig("5a5a", NcclProtocol.LL, 4, 512, 1 << 20)

    def entry(first: int, last: int, builtin_us: float | None, default_us: float) -> Entry:
        key = Key(Operation.ALL_GATHER, first, last, shape, "test")
        ring = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, 8)
        builtin = None if builtin_us is None else ring
        return Entry(key, last, builtin, schedule, 2.0, builtin_us, default_us, 5, 0.0, "", "test")

    def made_of(*entries: Entry) -> Table:
        return Table("test", "test", (), entries, {}, (StoredSchedule("5a5a", "ring", "<algo/>"),))

    table = made_of(
        entry(1024, 2048, 4.0, 10.1), entry(4096, 4096, None, 10.1), entry(8192, 8192, 0.0, 0.0)
    )
    bundle = read_bundle(bundle_bytes(table), "bundle")
    keys = [("all_gather", size_bytes) for size_bytes in (1024, 2048, 4096, 8192, 16384)]

    def stated(*, by_executor: bool = False, shape: Shape = shape) -> dict[tuple[str, int], float]:
        return stated_speedups(bundle, tmp_path, shape, keys, by_executor=by_executor)

    assert stated() == {}, "there is no file"
    file = tmp_path / "table.parquet"
    file.write_bytes(table_to_parquet_bytes(table))
    assert stated(by_executor=True) == {keys[1]: 5.05, keys[2]: 5.05}
    assert stated() == {keys[1]: 2.525}, "of 4 KB it has a schedule alone"
    assert stated(shape=Shape(4, 1, 4)) == {}
    # Shipped again, but for tuccl.env, which still names the bundle before.
    later = made_of(entry(1024, 2048, 4.0, 9.0), entry(4096, 4096, None, 10.1))
    file.write_bytes(table_to_parquet_bytes(later))
    assert stated(by_executor=True) == {keys[2]: 5.05}
    assert capsys.readouterr().err == ""
    file.write_bytes(b"PAR1")
    assert stated() == {}
    assert str(file) in capsys.readouterr().err


def test_a_process_profile_alone_is_a_table_too(
    bench: Callable[..., int],
    stand_ins: StandIns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    only_profile = Table("test", "test", (), (), {"NCCL_NTHREADS": "128"})
    shipped = ship_table(tmp_path / "shipped", stand_ins.plugin, only_profile)
    report = tmp_path / "report.json"
    words = ("--to", "1K", "--no-static", "--rounds", "1", "--json", report, "--table")
    assert bench(*words, shipped) == 0
    summary = json.loads(report.read_text())
    assert (summary["entries"]["keys_with_entry"], summary["stated"]) == (0, None)
    assert "NCCL_NTHREADS=128" in summary["variants"]["table"]["description"]
    assert "table states" not in capsys.readouterr().out
    (shipped / PLUGIN_NAME).unlink()
    assert bench(*words, shipped) == 2
    assert "NCCL does not use the table of" in capsys.readouterr().err


def test_a_table_is_used_where_it_was_moved_to(
    bench: Callable[..., int], stand_ins: StandIns, tmp_path: Path
) -> None:
    moved = ship(tmp_path / "shipped", stand_ins.plugin, 2).rename(tmp_path / "moved")
    report = tmp_path / "report.json"
    words = ("--to", "1K", "--no-static", "--rounds", "1", "--json", report, "--table")
    assert bench(*words, moved) == 0
    assert json.loads(report.read_text())["stated"]["keys"] == 1


def test_check_measuring_sees_wrong_data_and_that_all_else_is_right(
    scripts: ModuleType,
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(check_measuring, "SIZES", (4096,))
    monkeypatch.setattr(check_measuring, "OPERATIONS", ("all_reduce", "all_gather"))
    monkeypatch.setattr(check_measuring, "DATA_TYPES", ("float16",))
    monkeypatch.setattr(check_measuring, "PROOF_BYTES", 8192)
    monkeypatch.setattr(check_measuring, "M", 4096)
    report = tmp_path / "verdict.json"
    words = ["--nccl", str(stand_ins.nccl), "--gpus", "2", "--largest", "4096"]
    monkeypatch.setattr(sys, "argv", ["check_measuring.py", *words, "--json", str(report)])
    monkeypatch.setenv("STAND_IN_CORRUPTS", "all_gather")
    assert check_measuring.main() == 1
    verdict = json.loads(report.read_text())
    proof = "one channel is more than twice as slow as 16 on 64 MB"
    # Times on a busy machine may say anything; the rest may not.
    assert [n for n, holds in verdict["checks"].items() if not (holds or n == proof)] == [
        "all data is right"
    ]
    assert len(verdict["checks"]) == 5
    wrong = {row["key"].split()[0] for row in verdict["rows"] if row.get("findings")}
    assert wrong == {"all_gather"}
    monkeypatch.setattr(sys, "argv", ["check_measuring.py", *words, "--share-gpus"])
    with pytest.raises(SystemExit):
        check_measuring.main()
    assert "--share-gpus is for --fake-nodes" in capsys.readouterr().err
