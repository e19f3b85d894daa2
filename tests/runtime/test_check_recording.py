"""The reading of workloads and times by check_recording.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_recording import cost_of, differences, made_by, recorded_in, tell

from tuccl.lookup_tables.table import Operation
from tuccl.workloads.workload import (
    Datatype,
    SourceKind,
    Workload,
    WorkloadCall,
    WorkloadSource,
)
from tuccl.workloads.workload_file import write_workload

MADE = {
    "made": [
        {"operation": "all_reduce", "size_bytes": 64, "datatype": "float16", "graph": False,
         "calls": 7},
        {"operation": "all_reduce", "size_bytes": 64, "datatype": "float16", "graph": True,
         "calls": 2},
    ]
}  # fmt: skip


def call(graph: bool, calls: float, ranks: int = 2) -> WorkloadCall:
    return WorkloadCall(
        operation=Operation.ALL_REDUCE,
        datatype=Datatype.FLOAT16,
        reduction=None,
        size_bytes=64,
        ranks=ranks,
        nodes=1,
        siblings=1,
        in_place=None,
        graph=graph,
        calls_per_step=calls,
        us_per_call=None,
    )


def found(folder: Path, *calls: WorkloadCall) -> list[str]:
    workload = Workload(
        source=WorkloadSource(SourceKind.RECORDED, ()),
        ranks=2,
        nodes=1,
        steps=None,
        calls=calls,
    )
    write_workload(folder / "W.json", workload)
    return differences(made_by(MADE), recorded_in(folder / "W.json", 2))


def test_a_right_workload_has_no_difference(tmp_path: Path) -> None:
    assert found(tmp_path, call(False, 7), call(True, 2)) == []


def test_calls_that_differ_are_named(tmp_path: Path) -> None:
    assert found(tmp_path, call(False, 8), call(True, 2), call(False, 1, ranks=3)) == [
        "all_reduce of 64 bytes of float16: made 7, recorded 8",
        "all_reduce of 3 ranks of 64 bytes of float16: made 0, recorded 1",
    ]


def test_costs_have_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    cost = cost_of([1.002, 1.004, 1.003])
    assert cost["least"] < 0.003 < cost["most"]
    assert cost["mean"] == pytest.approx(0.003, abs=1e-5)
    results = {"versions": "torch", "wrong": [], "calls": 9, "costs": {"small": cost}}
    assert tell(results, "3 rounds") == 0
    assert "cost of recording, small: +0.30 % (+0.05 to +0.55 %)" in capsys.readouterr().out
    dear = {"small": cost_of([1.02, 1.021, 1.019])}
    assert tell(results | {"costs": dear}, "3 rounds") == 1
    assert tell(results | {"wrong": ["a call"]}, "3 rounds") == 1
