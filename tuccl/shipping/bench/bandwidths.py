"""The figures that nccl-tests prints beside a time: count, algorithm and bus bandwidth."""

from __future__ import annotations

from tuccl.search.trials.config import Task


def element_count(task: Task, element_bytes: int) -> int:
    """Return the count argument of NCCL's function."""
    return task.called_bytes // element_bytes // task.operation.parts(task.shape.ranks)


def algbw_gb_per_s(task: Task, time_us: float) -> float:
    """Return the size over the time."""
    return task.called_bytes * 1e-3 / time_us


def busbw_gb_per_s(task: Task, time_us: float) -> float:
    """Return algbw times nccl-tests' factor for the operation."""
    return task.operation.bus_factor(task.shape.ranks) * algbw_gb_per_s(task, time_us)
