"""Times of a trace's calls: what steps wait for, with and without the profiler's slower host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tuccl.workloads.recordings.written_logs import (
    event,
    imported,
    step,
    trace,
    workload,
)
from tests.tuccl.workloads.recordings.written_traces import host, host_bound_steps, work
from tuccl.errors import InputFileError
from tuccl.workloads.recordings import kineto_times

NOT_TOLD = (
    "the GPU waits for the host, and the profiler slows the host: give the time of a step without "
    "the profiler (--step-time), or calls seem to matter less than they do"
)


def gradient_step(begun_us: float, number: int) -> list[dict[str, Any]]:
    """A step of 300 us: a sum of 120 us beside 60 us of computation; an optimizer waits for both.

    The host launches all of it within the first 40 us.
    """
    first = 10 * number
    summed = event(ts=begun_us + 13.0)
    return [
        step(number, begun_us, 300.0),
        summed,
        host("cudaLaunchKernel", begun_us + 5.0, 2.0, first),
        work(begun_us + 10.0, 100.0, first, 7),
        host("cudaEventRecord", begun_us + 9.0, 1.0),
        host("cudaStreamWaitEvent", begun_us + 11.0, 1.0),
        host("cudaLaunchKernelExC", begun_us + 14.0, 2.0, first + 1),
        work(begun_us + 110.0, 120.0, first + 1, 20, summed),
        host("cudaLaunchKernel", begun_us + 18.0, 2.0, first + 2),
        work(begun_us + 110.0, 60.0, first + 2, 7),
        host("cudaEventRecord", begun_us + 17.0, 0.5),
        host("cudaStreamWaitEvent", begun_us + 25.0, 1.0),
        host("cudaLaunchKernel", begun_us + 30.0, 2.0, first + 3),
        work(begun_us + 230.0, 60.0, first + 3, 7),
        host("cudaDeviceSynchronize", begun_us + 40.0, 255.0),
    ]


def gradient_steps() -> str:
    return trace([*gradient_step(0.0, 1), *gradient_step(300.0, 2)])


def test_a_step_waits_for_a_sum_as_long_as_it_outlasts_the_computation_beside_it(
    tmp_path: Path,
) -> None:
    """The optimizer begins at 170 of 230 us without the sum: 60 of its 120 us are exposed."""
    found = imported(tmp_path, gradient_steps())
    (only,) = found.workload.calls
    assert (only.calls_per_step, only.us_per_call) == (1.0, 120.0)
    assert only.exposed_us_per_call == pytest.approx(60.0)
    # The step waits for the computation before the sum and the optimizer, not for that beside it.
    assert only.computation_us_per_call == 60.0
    assert only.exposed_computation_us_per_call == pytest.approx(60.0 * 160.0 / 220.0)
    assert found.notes == ()


def test_a_trace_in_which_the_gpu_waits_for_its_host_says_so(tmp_path: Path) -> None:
    found = imported(tmp_path, host_bound_steps())
    (only,) = found.workload.calls
    assert (only.us_per_call, only.exposed_us_per_call) == (20.0, 0.0)
    (note,) = found.notes
    assert note.endswith(NOT_TOLD)


IN_BETWEEN = (
    "a step takes 0.4 ms in the trace and 0.2 ms without the profiler: the host's time is scaled "
    "by 0.51"
)
GPU_ALONE = (
    "the GPU's work of a step takes 0.08 ms in the trace, longer than --step-time: the host's time "
    "is left out"
)
NO_LONGER = "a step takes 0.4 ms in the trace, no longer than --step-time: taken as it is"


@pytest.mark.parametrize(
    ("step_us", "exposed_us", "note"),
    [(200.0, 0.0, IN_BETWEEN), (50.0, 20.0, GPU_ALONE), (900.0, 0.0, NO_LONGER)],
)
def test_the_time_of_a_step_tells_how_much_the_profiler_slowed_the_host(
    tmp_path: Path, step_us: float, exposed_us: float, note: str
) -> None:
    """With half of its time the host is still behind; with none of it all calls are waited for."""
    found = imported(tmp_path, host_bound_steps(), step_us=step_us)
    (only,) = found.workload.calls
    assert only.exposed_us_per_call == pytest.approx(exposed_us)
    assert [each.split(": ", 1)[1] for each in found.notes] == [note]


def test_the_time_of_a_step_needs_steps(tmp_path: Path) -> None:
    calls = [event(elements=(size, size), ts=float(size)) for size in range(1, 5)]
    with pytest.raises(InputFileError, match="the trace marks none; give --steps"):
        imported(tmp_path, trace(calls), step_us=100.0)
    assert workload(tmp_path, trace(calls), step_us=100.0, steps=2.0).steps == 2


def test_a_trace_without_launches_does_not_use_the_time_of_a_step(tmp_path: Path) -> None:
    whole = json.loads(host_bound_steps())
    events = [each for each in whole["traceEvents"] if each["cat"] != "cuda_runtime"]
    found = imported(tmp_path, trace(events), step_us=200.0)
    (only,) = found.workload.calls
    assert only.exposed_us_per_call == 20.0
    (note,) = found.notes
    assert note.endswith("nothing else runs on its GPU, and --step-time is not used")


def test_times_are_those_of_the_steps(tmp_path: Path) -> None:
    """A call of 120 us in each of two steps, and one of 10 us after them, which is left out."""
    late = event(ts=700.0)
    after = [late, host("cudaLaunchKernel", 701.0, 2.0, 99), work(705.0, 10.0, 99, 20, late)]
    found = workload(tmp_path, trace([*gradient_step(0.0, 1), *gradient_step(300.0, 2), *after]))
    (only,) = found.calls
    assert only.us_per_call == 120.0
    assert only.exposed_us_per_call == pytest.approx(60.0)


def test_a_replay_that_takes_longer_than_the_trace_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_times, "_MOST_LONGER", -0.5)
    found = imported(tmp_path, gradient_steps())
    (only,) = found.workload.calls
    # The time of the sum in which no computation runs.
    assert only.exposed_us_per_call == 60.0
    (note,) = found.notes
    assert "a replay of the trace takes 0.6 ms and the trace 0.6 ms: a call counts as" in note


def test_streams_of_two_gpus_are_two_streams(tmp_path: Path) -> None:
    """A sum on stream 20 of GPU 0 beside computation on that of GPU 1, which takes longer."""
    summed = event(ts=1.0)
    beside = work(12.0, 400.0, 2, 20)
    beside["args"]["device"] = 1
    events = [
        step(1, 0.0, 450.0),
        summed,
        host("cudaLaunchKernelExC", 2.0, 2.0, 1),
        work(10.0, 100.0, 1, 20, summed),
        host("cudaLaunchKernel", 5.0, 2.0, 2),
        beside,
        host("cudaLaunchKernel", 8.0, 2.0, 3),
        work(110.0, 20.0, 3, 20),
        host("cudaDeviceSynchronize", 20.0, 420.0),
    ]
    (only,) = workload(tmp_path, trace(events)).calls
    assert only.exposed_us_per_call == 0.0


def test_of_a_long_trace_the_first_steps_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = trace([each for step in range(4) for each in gradient_step(300.0 * step, step + 1)])
    whole = imported(tmp_path, text, step_us=300.0)
    monkeypatch.setattr(kineto_times, "MOST_REPLAYED", 20)  # Two steps have 16 such calls.
    found = imported(tmp_path, text, step_us=300.0)
    assert found.workload == whole.workload
    assert "the trace is long: its first 50% was replayed" in found.notes[-1]
    assert len(found.notes) == len(whole.notes) + 1


def test_a_collective_outside_the_part_that_is_replayed_keeps_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = event(ts=315.0, elements=(4096, 4096))
    launched = [host("cudaLaunchKernelExC", 316.0, 2.0, 99), work(540.0, 30.0, 99, 20, late)]
    text = trace([*gradient_step(0.0, 1), *gradient_step(300.0, 2), late, *launched])
    monkeypatch.setattr(kineto_times, "MOST_REPLAYED", 8)
    calls = imported(tmp_path, text).workload.calls
    times = sorted((call.us_per_call, call.exposed_us_per_call) for call in calls)
    assert times == [(30.0, None), (120.0, pytest.approx(60.0))]
