"""`tuccl workload import` and `show`, as users call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from json_reference import schema_of

from tests.tuccl.conftest import Run
from tests.tuccl.workloads.recordings.written_logs import call, event, init, step, trace
from tests.tuccl.workloads.recordings.written_traces import host_bound_steps

LOG = init(0, 2) + init(1, 2)
for _ in range(8):
    LOG += "".join(call(rank, 2, count=1 << 20) + call(rank, 2, count=9) for rank in range(2))
LOG += call(0, 2, operation="Send", count=64) + call(0, 1, comm="0x1")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "nccl.log"
    path.write_text(LOG)
    return path


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema_of(name)
    return found


def test_a_log_becomes_a_workload_that_can_be_shown(
    run_inside: Run, log: Path, tmp_path: Path
) -> None:
    done = run_inside("workload", "import", log, "--steps", "4", "-o", "w.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "2 keys of a job of 2 ranks on 1 node: a rank makes 4.12 calls of 8.39 MB in each of 4 "
        "steps, written to w.json\n"
    )
    assert "note: left out: calls on communicators of one rank: 1" in done.stderr
    jsonschema.validate(json.loads((tmp_path / "w.json").read_text()), schema("workload-file"))
    shown = run_inside("workload", "show", "w.json")
    assert shown.returncode == 0
    assert "2 ranks, 1 node  all_reduce  float32 sum" in shown.stdout
    assert "no table has send: 0.125 calls of 32 B, 0.0 % of all bytes" in shown.stdout
    assert "left out: calls on communicators of one rank: 1" in shown.stdout
    assert run_inside("workload", "import", log, "-o", "again.json").returncode == 0
    assert json.loads((tmp_path / "again.json").read_text())["steps"] == 8


def test_documents_are_valid(run_inside: Run, log: Path) -> None:
    made = run_inside("workload", "import", log, "-o", "w.json", "--json").stdout
    assert run_inside("workload", "show", "w.json", "--json").stdout == made
    document = json.loads(made)
    jsonschema.validate(document, schema("workload"))
    every = [*document["calls"], *document["not_tuned"]]
    assert sum(each["share_of_calls"] for each in every) == pytest.approx(1, abs=1e-6)
    assert sum(each["share_of_bytes"] for each in every) == pytest.approx(1, abs=1e-6)


def test_traces_of_several_ranks(run_inside: Run, tmp_path: Path) -> None:
    for rank in range(2):
        events = [step(1, 0.0, 50.0), event(ts=10.0), event(ts=20.0)]
        (tmp_path / f"trace{rank}.json").write_text(trace(events, rank))
    done = run_inside("workload", "import", "trace0.json", "trace1.json", "--ranks-per-node", "1",
                      "--from", "kineto", "-o", "w.json", "--json")  # fmt: skip
    (only,) = json.loads(done.stdout)["calls"]
    assert (only["calls_per_step"], only["nodes"], only["datatype"]) == (2, 2, "float32")


def test_a_trace_is_held_against_the_time_of_a_step_without_the_profiler(
    run_inside: Run, tmp_path: Path
) -> None:
    (tmp_path / "trace.json").write_text(host_bound_steps())
    done = run_inside("workload", "import", "trace.json", "--step-time", "0.05ms", "-o", "w.json",
                      "--json")  # fmt: skip
    (only,) = json.loads(done.stdout)["calls"]
    assert (only["us_per_call"], only["exposed_us_per_call"]) == (20.0, pytest.approx(20.0))
    assert "trace.json: the GPU's work of a step takes 0.08 ms in the trace" in done.stderr
    shown = run_inside("workload", "show", "w.json").stdout
    assert (
        "a step takes 0.08 ms less without the collectives that tables have, which run for 0.08"
        in shown
    )
    words = ("workload", "import", "trace.json", "-o", "w.json")
    assert "a step takes 0.00 ms less without the collectives" in run_inside(*words).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("nccl.log", "-o", "nccl.log"), "is read by this command"),
        (("nccl.log", "-o", "."), "is a directory"),
        (("nccl.log",), "Missing option '--output'"),
        (("nccl.log", "-o", "w.json", "--step-time", "0"), "--step-time '0': use more than 0"),
        (("nccl.log", "-o", "w.json", "--step-time", "9ms"), "--step-time is for traces of"),
        (("nccl.log", "-o", "w.json", "--from", "xml"), "use one of nccl-log, kineto"),
        (("nccl.log", "-o", "w.json", "--steps", "0"), "--steps 0.0 is out of range"),
        (("nccl.log", "-o", "w.json", "--from", "csv"), "has no column 'operation'"),
        (("gone.log", "-o", "w.json"), "cannot read gone.log: No such file"),
    ],
)
@pytest.mark.usefixtures("log")
def test_refusals_are_one_line(
    run_inside: Run, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    done = run_inside("workload", "import", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "w.json").exists()


def test_show_refuses_what_is_no_workload(run_inside: Run, log: Path) -> None:
    done = run_inside("workload", "show", log)
    assert done.returncode == 2
    assert "no workload of TuCCL's" in done.stderr
    assert len(done.stderr.splitlines()) == 1
