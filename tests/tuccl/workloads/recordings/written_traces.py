"""Traces of PyTorch's profiler with the calls of the host that launched the work."""

from __future__ import annotations

from typing import Any

from tests.tuccl.workloads.recordings.written_logs import event, step, trace


def host(name: str, ts: float, dur: float, correlation: int = 0) -> dict[str, Any]:
    """A call of CUDA's API."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
        "args": {"correlation": correlation},
    }  # fmt: skip


def work(
    ts: float, dur: float, correlation: int, stream: int, of_call: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A kernel: computation, or that of a call."""
    arguments = {"correlation": correlation, "device": 0, "stream": stream}
    name = "gemm" if of_call is None else "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
        "args": arguments if of_call is None else {**of_call["args"], **arguments},
    }  # fmt: skip


def host_bound_steps() -> str:
    """Two steps of 400 us: each 100 us the host launches a call of 20 us."""
    events = [step(1, 0.0, 400.0), step(2, 400.0, 400.0)]
    for number in range(8):
        at_us = 100.0 * number
        made = event(ts=at_us + 1.0)
        launch = host("cudaLaunchKernelExC", at_us + 2.0, 2.0, number + 1)
        events += [made, launch, work(at_us + 7.0, 20.0, number + 1, 20, made)]
    return trace(events)
