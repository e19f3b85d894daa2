"""The reading of workloads and times by check_recording.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from check_recording import (
    build_profiler,
    build_switch,
    cost_of,
    differences,
    made_by,
    recorded_in,
    tell,
)

from lookup_tables.collective import Collective
from tuccl.runtime import PROFILER_NAME
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
        operation=Collective.ALL_REDUCE,
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
    # A block that something stopped for as long as it takes counts for no more than another.
    cost = cost_of([1.002, 1.004, 1.003, 2.1, 1.001, 1.0025])
    assert (cost["least"], cost["most"]) == pytest.approx((0.001, 1.1))
    assert cost["median"] == pytest.approx(0.00275)
    results = {"versions": "torch", "wrong": [], "calls": 9, "costs": {"small": cost}}
    assert tell(results, "3 rounds") == 0
    assert "cost of recording, small: +0.27 % (+0.10 to +110.00 %)" in capsys.readouterr().out
    dear = {"small": cost_of([1.02, 1.021, 1.019, 1.0205, 1.0195, 1.0215])}
    assert tell(results | {"costs": dear}, "3 rounds") == 1
    assert tell(results | {"wrong": ["a call"]}, "3 rounds") == 1


PLAYED = """
import ctypes, sys
INIT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.POINTER(ctypes.c_int),
    ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
)
FINALIZE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
class Plugin(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("init", INIT), ("start", ctypes.c_void_p),
                ("stop", ctypes.c_void_p), ("state", ctypes.c_void_p), ("finalize", FINALIZE)]
library = ctypes.CDLL(sys.argv[1])
library.switch_recorder.argtypes, library.switch_recorder.restype = [ctypes.c_bool], ctypes.c_bool
assert not library.switch_recorder(False), "NCCL has not started it"
plugin = Plugin.in_dll(library, "ncclProfiler_v6")
context, events = ctypes.c_void_p(), ctypes.c_int()
code = plugin.init(ctypes.byref(context), 0x77, ctypes.byref(events), b"", 1, 2, 0, None)
asked = [events.value]
for on in (False, True):
    assert library.switch_recorder(on)
    asked.append(events.value)
print(code, *asked)
plugin.finalize(context)
"""


@pytest.mark.long
def test_the_switch_takes_back_the_events_that_the_recorder_asked_nccl_for(tmp_path: Path) -> None:
    build_profiler(tmp_path)
    recorder = tmp_path / "tuccl" / "runtime" / PROFILER_NAME
    folder = tmp_path / "recording"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PLAYED, str(build_switch(tmp_path))],
        env={**os.environ, "TUCCL_RECORDER": str(recorder), "TUCCL_RECORD": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    calls = 1 << 9 | 1 << 10
    assert (done.stdout, done.stderr) == (f"0 {calls} 0 {calls}\n", "")
    (path,) = folder.iterdir()
    assert json.loads(path.read_text("utf-8"))["communicators"][0]["ranks"] == 2
