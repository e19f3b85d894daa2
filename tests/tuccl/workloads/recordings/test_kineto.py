"""Traces of PyTorch's profiler: sizes, groups, steps, times, and what is missing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.workloads.recordings.written_logs import event, imported, step, trace, workload
from tuccl.errors import InputFileError
from tuccl.workloads.workload import Datatype


def kernel(call: dict[str, Any], dur: float) -> dict[str, Any]:
    """The kernel of a call."""
    return {**call, "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "dur": dur}


@pytest.mark.parametrize(
    ("name", "elements", "operation", "size_bytes", "in_place"),
    [
        ("allreduce", (1000, 1000), Collective.ALL_REDUCE, 4000, True),
        ("broadcast", (1000, 1000), Collective.BROADCAST, 4000, True),
        ("_reduce_oop", (1000, 1000), Collective.REDUCE, 4000, None),
        ("_allgather_base", (1000, 2000), Collective.ALL_GATHER, 8000, None),
        ("_reduce_scatter_base", (2000, 1000), Collective.REDUCE_SCATTER, 8000, None),
        ("all_to_all", (2000, 2000), Collective.ALLTOALL, 8000, None),
    ],
)
def test_operations_and_sizes(
    tmp_path: Path,
    name: str,
    elements: tuple[int, int],
    operation: Collective,
    size_bytes: int,
    in_place: bool | None,
) -> None:
    (only,) = workload(tmp_path, trace([event(name, elements=elements)])).calls
    assert (only.operation, only.size_bytes, only.in_place) == (operation, size_bytes, in_place)
    assert (only.datatype, only.reduction, only.graph) == (Datatype.FLOAT32, None, False)


def test_steps_are_those_of_the_profiler(tmp_path: Path) -> None:
    events = [event(ts=5.0), step(3, 10.0, 90.0), step(4, 100.0, 90.0)]
    for ts in (20.0, 30.0, 120.0, 130.0):
        events += [event(ts=ts), event("wait", ts=ts + 1, elements=(0, 0), dtype="Byte")]
    found = workload(tmp_path, trace(events))
    assert found.steps == 2
    assert found.calls[0].calls_per_step == 2
    assert found.source.left_out == ("calls outside the profiler's steps: 1",)
    assert (found.ranks, found.nodes) == (2, None)


def test_steps_by_the_period_of_calls_where_the_profiler_marks_none(tmp_path: Path) -> None:
    calls = [event(elements=(size, size), ts=float(ts)) for ts, size in enumerate([1, 2, 2] * 5)]
    assert workload(tmp_path, trace(reversed(calls))).steps == 5


def test_times_are_those_of_kernels(tmp_path: Path) -> None:
    calls = [event(ts=1.0), event(ts=2.0), event(ts=3.0, elements=(7, 7))]
    kernels = [kernel(calls[0], 100.0), kernel(calls[1], 300.0)]
    found = workload(tmp_path, trace([*calls, *kernels]))
    assert [each.us_per_call for each in found.calls] == [None, 200.0]


def test_what_computation_hides_of_a_call_is_told(tmp_path: Path) -> None:
    """A multiplication covers 60 of the first call's 100 us, a copy 10 of the second's 50."""
    calls = [event(ts=100.0), event(ts=400.0)]
    kernels = [kernel(calls[0], 100.0), kernel(calls[1], 50.0)]
    work = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 80.0, "dur": 80.0, "args": {}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "ts": 390.0, "dur": 20.0},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0.0, "dur": 900.0, "args": {}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": "soon", "dur": 80.0, "args": {}},
    ]
    (only,) = workload(tmp_path, trace([*calls, *kernels, *work])).calls
    assert (only.us_per_call, only.exposed_us_per_call) == (75.0, 40.0)
    assert only.computation_us_per_call == 30.0, "a copy takes no multiprocessor"
    (without,) = workload(tmp_path, trace(calls)).calls
    assert (without.exposed_us_per_call, without.computation_us_per_call) == (None, None)


def test_computation_beside_a_call_had_the_multiprocessors_that_its_channels_left(
    tmp_path: Path,
) -> None:
    """The call took 33 of 132: in its 100 us the GPU did 75 us of computation."""
    made = event(ts=1.0)
    call = kernel(made, 100.0)
    call["args"] = call["args"] | {"grid": [33, 1, 1]}
    gemm = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1.0, "dur": 200.0, "args": {}}
    text = trace([made, call, gemm])
    for properties, computed_us in (({"id": 0, "numSms": 132}, 75.0), ({"id": 0}, 100.0)):
        with_gpu = text.replace("{", '{"deviceProperties": [' + json.dumps(properties) + "],", 1)
        (only,) = workload(tmp_path, with_gpu).calls
        assert only.computation_us_per_call == pytest.approx(computed_us)


def test_computation_is_that_of_the_rank_that_waits_least_for_the_others(tmp_path: Path) -> None:
    """Rank 0 is in its call for 100 us, 70 of which it computes; rank 1 comes late, for 20 us."""
    texts = []
    for rank, (took_us, computed_us) in enumerate([(100.0, 70.0), (20.0, 5.0)]):
        made = event(ts=1.0)
        gemm = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1.0, "dur": computed_us}
        texts.append(trace([made, kernel(made, took_us), gemm | {"args": {}}], rank))
    (only,) = workload(tmp_path, *texts).calls
    assert (only.us_per_call, only.computation_us_per_call) == (60.0, 5.0)


def test_traces_of_several_ranks_count_a_call_once(tmp_path: Path) -> None:
    """Ranks 0 to 3 in groups {0, 1} and {2, 3}, and one of all."""
    texts = []
    for rank in range(4):
        pair = (0, 1) if rank < 2 else (2, 3)
        events = [event(ranks=pair, group=f"tp{pair[0]}", ts=float(ts)) for ts in range(6)]
        texts.append(trace([*events, event(ranks=range(4), ts=9.0)], rank, world=4))
    found = workload(tmp_path, *texts, ranks_per_node=2)
    assert [
        (each.ranks, each.nodes, each.siblings, each.calls_per_step) for each in found.calls
    ] == [(4, 2, 1, 1), (2, 1, 2, 6)]
    assert (found.ranks, found.nodes) == (4, 2)


def test_nodes_of_a_group_follow_its_ranks(tmp_path: Path) -> None:
    rail = event(ranks=(0, 8, 16, 24), group="dp")
    text = trace([rail], world=32)
    assert workload(tmp_path, text).calls[0].nodes is None
    assert workload(tmp_path, text, ranks_per_node=8).calls[0].nodes == 4


def test_a_long_list_of_ranks_is_cut_in_the_trace(tmp_path: Path) -> None:
    many = event(ranks=range(512))
    many["args"]["Process Group Ranks"] = "[0, 1, 2, ...]"
    (only,) = workload(tmp_path, trace([many], world=1024), ranks_per_node=8).calls
    assert (only.ranks, only.nodes) == (512, None)


@pytest.mark.parametrize(
    ("name", "more", "operation"),
    [
        ("all_to_allv", {"In split size": "[500, 1500]"}, "alltoallv"),
        ("all_to_allv", {"Out split size": "[1, 1, ...]"}, "alltoallv"),
        ("send", {}, "send"),
        ("allreduce_coalesced", {}, "allreduce_coalesced"),
    ],
)
def test_what_no_table_has(tmp_path: Path, name: str, more: dict[str, Any], operation: str) -> None:
    found = workload(tmp_path, trace([event(name, elements=(2000, 2000), **more)]))
    assert found.calls == ()
    assert [(each.operation, each.bytes_per_step) for each in found.not_tuned] == [
        (operation, 8000)
    ]


def test_equal_splits_are_an_alltoall(tmp_path: Path) -> None:
    even = event("all_to_allv")
    even["args"] |= {"In split size": "[5, 5]", "Out split size": "[5, 5]"}
    assert workload(tmp_path, trace([even])).calls[0].operation is Collective.ALLTOALL


def test_replays_of_graphs_are_told_by_their_kernels(tmp_path: Path) -> None:
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 1.0, "dur": 1.0,
              "args": {"correlation": 42}}  # fmt: skip
    nameless = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 2.0,
                "dur": 9.0, "args": {"correlation": 42}}  # fmt: skip
    found = workload(tmp_path, trace([event(), launch, nameless, nameless]))
    assert found.calls[0].graph is None
    assert found.source.left_out == (
        "kernels of NCCL that CUDA graphs launched, whose sizes no trace has: 2",
    )


def test_calls_without_figures_are_left_out(tmp_path: Path) -> None:
    unknown = event(dtype="ComplexFloat")
    old = {**event(), "args": {"External id": 5}}
    found = workload(tmp_path, trace([event(), unknown, old]))
    assert found.calls[0].calls_per_step == 1
    assert [what.rpartition(": ")[2] for what in found.source.left_out] == ["1", "1"]
    with pytest.raises(InputFileError, match=r"no collective in it .*PyTorch before 2\.3"):
        workload(tmp_path, trace([old]))


def test_a_trace_in_pieces_and_as_gzip(tmp_path: Path) -> None:
    filler = [{"ph": "X", "name": "aten::linear", "ts": 1.0, "args": {"text": "x" * 3000}}] * 900
    text = trace([*filler, event(), *filler, event()])
    assert len(text) > 4 << 20
    packed = gzip.compress(text.encode(), 1)
    assert workload(tmp_path, packed).calls == workload(tmp_path, text).calls
    cut = imported(tmp_path, packed[: len(packed) * 9 // 10])
    assert cut.workload.calls[0].calls_per_step == 1
    assert len(cut.notes) == 2


@pytest.mark.long
def test_long_members_before_the_events_are_skipped(tmp_path: Path) -> None:
    frames = {"stackFrames": {str(number): {"name": "x" * 50} for number in range(80_000)}}
    whole = json.loads(trace([event()]))
    events = {"traceEvents": whole.pop("traceEvents")}
    text = json.dumps(whole | frames | events)
    assert len(text) > 5 << 20
    found = imported(tmp_path, text)
    assert found.workload.calls[0].calls_per_step == 1
    assert found.notes == ()


def test_a_damaged_event_is_left_out(tmp_path: Path) -> None:
    text = trace([event(), event("broken"), event()]).replace('"broken"', '"bro\\ken')
    found = workload(tmp_path, text)
    assert found.calls[0].calls_per_step == 2
    assert found.source.left_out == ("damaged events: 1",)


def test_a_rank_has_one_trace(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="a second trace of rank 0"):
        workload(tmp_path, trace([event()]), trace([event()]))


@pytest.mark.parametrize(
    "events",
    [
        [None, 1, "x", [], {}],
        [{"name": 5}, {"name": "record_param_comms"}, {"name": "record_param_comms", "args": []}],
        [event(elements=(-1, 1)), event(elements=(1 << 70, 1)), event(ranks=())],
        [{**event(), "ts": "soon"}, {**event(), "ts": float("nan")}],
        [step(1, float("inf"), 1.0)],
    ],
)
def test_events_of_odd_types_are_no_calls(tmp_path: Path, events: list[Any]) -> None:
    text = json.dumps({"traceEvents": [*events, event()]})
    assert workload(tmp_path, text).calls[0].calls_per_step == 1
