"""The figures that nccl-tests prints beside a time: count, algorithm and bus bandwidth."""

from __future__ import annotations

from lookup_tables.collective import Collective
from tuccl.search.trials.config import Task

_REDUCING = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)


def element_count(task: Task, element_bytes: int) -> int:
    """Return the count argument of NCCL's function."""
    ranks = task.shape.ranks if task.operation.divides else 1
    return task.called_bytes // element_bytes // ranks


def reduction(task: Task) -> str:
    """Return `sum`, or `none` for an operation without reduction."""
    return "sum" if task.operation in _REDUCING else "none"


def algbw_gb_per_s(task: Task, time_us: float) -> float:
    """Return the size over the time."""
    return task.called_bytes * 1e-3 / time_us


def busbw_gb_per_s(task: Task, time_us: float) -> float:
    """Return algbw times nccl-tests' factor for the operation (doc/PERFORMANCE.md there)."""
    factor = 1.0
    if task.operation is Collective.ALL_REDUCE:
        factor = 2.0 * (task.shape.ranks - 1) / task.shape.ranks
    elif task.operation.divides:
        factor = (task.shape.ranks - 1) / task.shape.ranks
    return factor * algbw_gb_per_s(task, time_us)
