"""`tuccl init --workload` with a trace's computation: calls are timed beside it, and told so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from probes.files.read import shipped_machines
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.workloads.made_workloads import call, workload, written
from tuccl.measuring.records.record_file import write_record
from tuccl.shipping.manifest import MANIFEST_NAME

pytestmark = pytest.mark.long

MIB = 1 << 20
HIDDEN = replace(
    call(Collective.ALL_REDUCE, 32 * MIB, 10.0),
    us_per_call=300.0,
    exposed_us_per_call=100.0,
    computation_us_per_call=400.0,
)
ALONE = call(Collective.ALL_GATHER, MIB, 4.0)
MACHINE = str(shipped_machines()["h200-4gpu"])


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A workload with computation beside its sums, and none known beside its gathers."""
    return written(tmp_path / "job.json", workload(HIDDEN, ALONE))


def test_calls_are_timed_until_the_computation_beside_them_has_ended(
    run_inside: Run, job: Path, tmp_path: Path
) -> None:
    words = ("init", "--topology", MACHINE, "--workload", job)
    done = run_inside(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert "calls of 1 of 2 keys are timed beside as much computation as a recording" in done.stderr
    assert "--max-channels" not in done.stderr, "that is for calls that are timed alone"
    beside = check("table", done.stdout)
    assert beside["step"]["beside_computation"] is True
    again = run_inside(*words)
    assert "us of communication and the computation beside it with stock NCCL" in again.stdout
    assert "of the machine, beside computation" in again.stdout
    told = run_inside("explain", "all_reduce", "32M")
    assert "each call was timed beside 400.0 us of computation, until both had" in told.stdout
    assert "of computation" not in run_inside("explain", "all_gather", "1M").stdout
    assert run_inside("report", "-o", "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "timed beside the computation that the recording has beside them" in page

    apart = run_inside(*words, "--alone", "--workspace", "alone", "--json")
    assert "are timed alone: --max-channels N bounds" in apart.stderr
    alone = check("table", apart.stdout)
    assert alone["step"]["beside_computation"] is False
    of_sums, of_gathers = (times_us(beside, n) for n in ("all_reduce", "all_gather"))
    assert of_sums["stock_us"] > 400.0 > times_us(alone, "all_reduce")["stock_us"]
    of_alone = times_us(alone, "all_gather")
    assert of_gathers["stock_us"] == pytest.approx(of_alone["stock_us"], rel=0.02)
    # Alone it is the fastest to have 32 channels of 132 multiprocessors, but not beside 400 us.
    assert alone["profile"] == {"NCCL_MIN_CTAS": "32"}
    assert beside["profile"] == {}


def times_us(document: dict[str, Any], operation: str) -> dict[str, float]:
    (found,) = (key for key in document["keys"] if key["operation"] == operation)
    return {"stock_us": found["stock_us"]}


@pytest.mark.slow
def test_a_shipped_table_says_what_was_computed_beside_its_calls(
    run_inside: Run, job: Path, tmp_path: Path
) -> None:
    for workspace, more in (("beside", ()), ("alone", ("--alone",))):
        place = ("--workspace", workspace)
        words = ("init", "--topology", MACHINE, "--workload", job, *more, *place)
        assert run_inside(*words).returncode == 0
        assert run_inside("ship", f"shipped-{workspace}", *place).returncode == 0
    found = [
        json.loads((tmp_path / f"shipped-{name}" / MANIFEST_NAME).read_text("utf-8"))
        for name in ("beside", "alone")
    ]
    shape = {"ranks": 4, "nodes": 1, "ranks_per_node": 4}
    only = {"operation": "all_reduce", "shape": shape, "size_bytes": 32 * MIB, "time_us": 400.0}
    assert [manifest["computations"] for manifest in found] == [[only], []]
    shown = run_inside("show", "shipped-beside").stdout
    assert "communication and the computation beside it" in shown


def test_what_was_recorded_alone_is_replayed_alone(run_inside: Run, tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    sums = replace(HIDDEN, size_bytes=4096)
    job = written(tmp_path / "job.json", workload(sums))
    done = run_inside("init", "--records", "r.parquet", "--workload", job, "--json")
    assert done.returncode == 0, done.stderr
    assert "are timed beside" not in done.stderr
    assert check("table", done.stdout)["step"]["beside_computation"] is False


def test_a_record_keeps_what_was_computed_beside_its_calls(run_inside: Run, job: Path) -> None:
    made = run_inside(
        "init", "--topology", MACHINE, "--workload", job, "--record", "r.parquet", "--json"
    )
    assert made.returncode == 0, made.stderr
    words = ("init", "--records", "r.parquet", "--workload", job, "--workspace", "replayed")
    replayed = run_inside(*words, "--json")
    assert replayed.returncode == 0, replayed.stderr
    steps = [check("table", done.stdout)["step"] for done in (made, replayed)]
    assert steps[0]["stock_us"] == steps[1]["stock_us"]
    assert [step["beside_computation"] for step in steps] == [True, True]


def test_alone_needs_calls_that_are_timed(run_inside: Run, job: Path, tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    for words, why in (
        (("--topology", MACHINE), "--backend simulated times none and --workload names none"),
        (("--records", "r.parquet", "--workload", job), "a record states that itself"),
    ):
        done = run_inside("init", "--alone", *words)
        assert done.returncode == 2
        assert f"--alone says how calls are timed; {why}" in done.stderr
