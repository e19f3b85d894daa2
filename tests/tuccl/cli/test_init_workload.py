"""`tuccl init --workload`: the keys of a job are tuned, and a step's gain is told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.workloads.made_workloads import call, workload, written
from tuccl.measuring.records.record_file import write_record
from tuccl.workloads.workload import NotTuned
from tuccl.workloads.workload_file import read_workload
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

ALL_REDUCE, ALL_GATHER = Collective.ALL_REDUCE, Collective.ALL_GATHER
STEP = workload(
    call(ALL_REDUCE, 4096, 3.0),
    call(ALL_REDUCE, 65536, 1.0),
    call(ALL_GATHER, 65536, 2.0),
    call(ALL_REDUCE, 4096, 4.0, ranks=3),
    not_tuned=(NotTuned(operation="send", calls_per_step=1.0, bytes_per_step=16384.0),),
)
"""On the tiny grid stock NCCL takes 20 us for every call, and the best setting 10 us: six calls
that fit are 120 us and 60 us. Of 241,664 bytes 16,384 each are sent, and of 3 ranks."""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Name of the workload's file, beside the record of the tiny grid."""
    write_record(tmp_path / "r.parquet", tiny_grid())
    return written(tmp_path / "job.json", STEP)


def test_the_gain_of_a_step_is_that_of_its_calls(run_inside: Run, job: Path) -> None:
    words = ("init", "--records", "r.parquet", "--workload", job)
    done = run_inside(*words, "--json")
    assert done.returncode == 0, done.stderr
    document = check("table", done.stdout)
    assert [(key["operation"], key["size_bytes"]) for key in document["keys"]] == [
        ("all_gather", 65536),
        ("all_reduce", 4096),
        ("all_reduce", 65536),
    ], "all_gather of 4K is recorded, and not called"
    step = document["step"]
    assert (step["stock_us"], step["table_us"]) == pytest.approx((120.0, 60.0), rel=0.01)
    assert step["gain"] == pytest.approx(2.0, rel=0.01)
    assert 1.8 < step["low"] < step["gain"] < step["high"] < 2.2
    assert step["untuned_share"] == pytest.approx(16384 / 241664)
    assert step["left_out_share"] == pytest.approx(16384 / 241664)
    assert [key["stock_us"] for key in step["keys"]] == pytest.approx([60, 40, 20], rel=0.01)
    assert [each["calls"] for each in step["left_out"]] == [
        "all_reduce of 3 ranks on 1 node(s)",
        "send",
    ]
    assert "note: not tuned: send, 1 calls a step: no table has this operation" in done.stderr
    assert "note: not tuned: all_reduce of 3 ranks on 1 node(s), 4 calls a step: " in done.stderr

    again = run_inside(*words)
    assert "nothing to do: " in again.stderr
    line = next(line for line in again.stdout.splitlines() if line.startswith("a step of this"))
    assert " us of communication with stock NCCL, " in line
    assert "; 6.8 % of its bytes are of operations that TuCCL does not tune, and 6.8 % of" in line
    run = Workspace(job.parent / "tuccl-workspace").current()
    assert read_workload(run.workload) == STEP


def test_a_step_is_shorter_by_no_more_than_it_waited_for(run_inside: Run, job: Path) -> None:
    """Each call takes 10 of 20 us; those of 4K are exposed for 2 us, all_gather for 30."""
    exposed_us = {4096: 2.0, 65536: 30.0}
    calls = tuple(
        replace(each, exposed_us_per_call=exposed_us[each.size_bytes]) for each in STEP.calls
    )
    written(job, replace(STEP, calls=calls))
    words = ("init", "--records", "r.parquet", "--workload", job)
    step = check("table", run_inside(*words, "--json").stdout)["step"]
    assert step["stock_us"] - step["table_us"] == pytest.approx(60.0, rel=0.01)
    assert step["saved_us"] == pytest.approx(3 * 2.0 + 3 * 10.0, rel=0.01)
    line = next(line for line in run_inside(*words).stdout.splitlines() if "a step of this" in line)
    shorter = re.search(r"; the step itself is (\S+) us shorter; ", line)
    assert shorter is not None
    assert float(shorter[1]) == pytest.approx(36.0, rel=0.01)
    assert run_inside("report", "-o", "page.html").returncode == 0
    page = (job.parent / "page.html").read_text("utf-8")
    assert "no more than that by which the recorded step is shorter without it" in page


def test_another_workload_is_another_run_and_another_name_of_it_the_same(
    run_inside: Run, job: Path
) -> None:
    names = set()
    for count, name in ((1.0, "one.json"), (1.0, "same.json"), (2.0, "two.json")):
        written(job.with_name(name), workload(call(ALL_REDUCE, 4096, count), steps=None))
        done = run_inside("init", "--records", "r.parquet", "--workload", name)
        assert done.returncode == 0, done.stderr
        names.add(Workspace(job.parent / "tuccl-workspace").current().root.name)
    assert len(names) == 2
    assert "the recording of this workload, whose number of steps is unknown: " in done.stdout


def test_what_the_workload_says_is_not_said_twice(run_inside: Run, job: Path) -> None:
    for words in (("--min-size", "1K"), ("--shapes", "whole"), ("--weights", "all_reduce=2")):
        done = run_inside("init", "--records", "r.parquet", "--workload", job, *words)
        assert done.returncode == 2
        assert f"{words[0]} beside --workload: the workload says what is tuned" in done.stderr


def test_a_workload_without_a_call_that_fits_is_refused(run_inside: Run, job: Path) -> None:
    written(job, workload(call(ALL_REDUCE, 4096, 1.0, ranks=16, nodes=2)))
    done = run_inside("init", "--records", "r.parquet", "--workload", job)
    assert done.returncode == 2
    assert "no call of it can be tuned here; not tuned: all_reduce of 16 ranks" in done.stderr
    job.write_text("{}")
    done = run_inside("init", "--topology", "shipped:h200-4gpu", "--workload", job)
    assert done.returncode == 2
    assert "job.json: no workload of TuCCL's" in done.stderr
    assert "Traceback" not in done.stderr


def test_retune_keeps_the_workload_though_its_file_is_gone(
    run_inside: Run, job: Path, h200: Path
) -> None:
    machine = job.with_name("machine.xml")
    machine.write_text(h200.read_text())
    made = workload(call(ALL_GATHER, 100_000, 2.0), call(ALL_GATHER, 8, 1.0, ranks=2))
    done = run_inside("tune", "--topology", machine, "--workload", written(job, made))
    assert done.returncode == 0, done.stderr
    job.unlink()
    same = run_inside("retune")
    assert "the table stands" in same.stderr
    machine.write_text(h200.read_text().replace('count="18"', 'count="9"', 1))
    changed = run_inside("retune", "--json")
    assert changed.returncode == 0, changed.stderr
    document = check("retune", changed.stdout)
    assert document["tuned"] is True
    assert [(key["size_bytes"], key["shape"]["ranks"]) for key in document["keys"]] == [
        (100_000, 4),
        (8, 2),
    ]
    assert [key["calls_per_step"] for key in document["step"]["keys"]] == [2.0, 1.0]
    assert read_workload(Workspace(job.parent / "tuccl-workspace").current().workload) == made


def test_the_manifest_of_a_shipped_table_says_what_a_step_gains(run_inside: Run, job: Path) -> None:
    assert run_inside("init", "--records", "r.parquet", "--workload", job).returncode == 0
    assert run_inside("ship", "shipped").returncode == 0
    manifest = check("manifest", Path("shipped/tuccl-manifest.json").read_text())
    assert manifest["step"]["gain"] == pytest.approx(2.0, rel=0.01)
    assert "keys" not in manifest["step"]


def test_the_report_has_a_section_on_the_step(run_inside: Run, job: Path) -> None:
    assert run_inside("init", "--records", "r.parquet", "--workload", job).returncode == 0
    done = run_inside("report", "--json")
    assert done.returncode == 0, done.stderr
    step = check("report", done.stdout)["figures"]["tables"][0]["step"]
    assert step == check("table", run_inside("table", "--json").stdout)["step"]
    page = Path("tuccl-report.html").read_text()
    assert f"A step gains {step['gain']:.3f}x, 95 % interval" in page
    assert "all_reduce of 3 ranks on 1 node(s), 4 calls a step: the communicators" in page

    assert run_inside("ship", "shipped").returncode == 0
    of_ship = run_inside("report", "shipped", "--output", "of-ship.html", "--json")
    sums = check("report", of_ship.stdout)["figures"]["tables"][0]["step"]
    assert (sums["gain"], sums["keys"]) == (step["gain"], [])
    assert f"A step gains {step['gain']:.3f}x" in Path("of-ship.html").read_text()
    shown = run_inside("show", "shipped")
    assert f"(gain {step['gain']:.3f}x, 95 % interval " in shown.stdout
    assert (
        check("show", run_inside("show", "shipped", "--json").stdout)["step"]["gain"]
        == (step["gain"])
    )


def test_retune_without_the_copy_reads_the_users_file(run_inside: Run, job: Path) -> None:
    made = workload(call(ALL_GATHER, 100_000, 2.0))
    words = ("--topology", "shipped:h200-4gpu", "--workload", written(job, made))
    assert run_inside("tune", *words).returncode == 0
    copy = Workspace(job.parent / "tuccl-workspace").current().workload
    copy.unlink()
    assert "the table stands" in run_inside("retune").stderr
    job.unlink()
    done = run_inside("retune")
    assert done.returncode == 2
    assert f"cannot read {job}: No such file or directory; name a file that" in done.stderr
