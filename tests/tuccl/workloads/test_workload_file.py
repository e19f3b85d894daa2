"""Workloads keep every figure in their file, and damaged files are refused with one line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import InputFileError
from tuccl.workloads.workload import (
    Datatype,
    NotTuned,
    Reduction,
    SourceKind,
    Workload,
    WorkloadCall,
    WorkloadSource,
    sorted_calls,
)
from tuccl.workloads.workload_file import read_workload, workload_text, write_workload

GRADIENTS = WorkloadCall(
    operation=Collective.ALL_REDUCE,
    datatype=Datatype.FLOAT32,
    reduction=Reduction.SUM,
    size_bytes=25 << 20,
    ranks=16,
    nodes=2,
    siblings=1,
    in_place=True,
    graph=False,
    calls_per_step=4.0,
    us_per_call=812.5,
    exposed_us_per_call=0.0,
)
WEIGHTS = WorkloadCall(
    operation=Collective.ALL_GATHER,
    datatype=None,
    reduction=None,
    size_bytes=4096,
    ranks=8,
    nodes=None,
    siblings=2,
    in_place=None,
    graph=None,
    calls_per_step=0.5,
    us_per_call=None,
)
WORKLOAD = Workload(
    source=WorkloadSource(SourceKind.NCCL_LOG, ("rank0.log",), ("1 call of 0 bytes",)),
    ranks=16,
    nodes=2,
    steps=12,
    calls=(GRADIENTS, WEIGHTS),
    not_tuned=(NotTuned(operation="send", calls_per_step=1.0, bytes_per_step=1024.0),),
)


def test_a_file_keeps_every_figure(tmp_path: Path) -> None:
    write_workload(tmp_path / "w.json", WORKLOAD)
    assert read_workload(tmp_path / "w.json") == WORKLOAD


def test_unknown_figures_stay_unknown(tmp_path: Path) -> None:
    unknown = replace(WORKLOAD, ranks=None, nodes=None, steps=None, calls=(WEIGHTS,), not_tuned=())
    write_workload(tmp_path / "w.json", unknown)
    assert read_workload(tmp_path / "w.json") == unknown


def test_the_order_of_calls_does_not_change_the_file() -> None:
    backwards = replace(WORKLOAD, calls=(WEIGHTS, GRADIENTS))
    assert workload_text(backwards) == workload_text(WORKLOAD)
    assert sorted_calls(backwards.calls) == WORKLOAD.calls


def test_figures_of_a_step() -> None:
    assert GRADIENTS.bytes_per_step == 4 * (25 << 20)
    assert WORKLOAD.calls_per_step == 5.5
    assert WORKLOAD.bytes_per_step == 4 * (25 << 20) + 2048 + 1024


@pytest.mark.parametrize(
    ("ranks", "nodes", "shape"),
    [(16, 2, Shape(16, 2, 8)), (7, 2, Shape(7, 2, 0)), (8, None, None)],
)
def test_shapes(ranks: int, nodes: int | None, shape: Shape | None) -> None:
    assert replace(GRADIENTS, ranks=ranks, nodes=nodes).shape == shape


@pytest.mark.parametrize("datatype", Datatype)
def test_element_sizes_agree_with_the_names(datatype: Datatype) -> None:
    bits = re.search(r"(?:int|float)(\d+)", datatype)
    assert bits is not None
    assert datatype.element_bytes == int(bits[1]) // 8


def changed(**members: Any) -> str:
    return json.dumps(json.loads(workload_text(WORKLOAD)) | members)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        changed(format="tuccl-table"),
        changed(version=2),
        changed(layers=3),
        changed(steps=0),
        changed(ranks="16"),
        workload_text(WORKLOAD).replace('"calls_per_step": 4.0', '"calls_per_step": NaN'),
        workload_text(WORKLOAD).replace('"float32"', '"float31"'),
        workload_text(WORKLOAD).replace('"all_reduce"', '"custom"'),
        workload_text(WORKLOAD).replace('"nodes": 2', '"nodes": 17'),
        workload_text(WORKLOAD)[:-40],
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputFileError) as caught:
        read_workload(path)
    assert "\n" not in str(caught.value)
