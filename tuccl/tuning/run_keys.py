"""Keys of a run: all of them, their weights, those that decide the process profile, neighbours.

For a workload a key counts by the time that stock NCCL takes for its calls in a step. The mean of
the logarithmic gains with such weights is, for small gains, the gain of the step. Otherwise the
weights are those of `--weights`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.tuning.settings import RunSettings
from tuccl.workloads.step_calls import KeyCalls, times_per_step

_ENOUGH_KEYS, _ENOUGH_SIZES = 36, 12
"""Above both limits every second size is left out. Both count, so that one more operation does not
thin out a short ladder."""
_LEAST_SHARE = 0.001
"""Least weight of a key, as a share of the heaviest one's, so that each has a search."""


@dataclass(frozen=True)
class KeyWeights:
    """Weights of the keys of a run."""

    of_profile: Mapping[Task, float]
    """Weights in the choice of the process profile."""
    of_budget: Mapping[Task, float]
    """Weights in the division of the seconds for searches."""
    by_time: bool
    """Whether they are times of a workload, so that the heaviest keys come first."""

    def of_all(self, tasks: Sequence[Task]) -> float:
        """Weight of keys together in the division of the seconds for searches."""
        return sum(self.of_budget[task] for task in tasks)

    def in_order(self, tasks: Sequence[Task]) -> list[Task]:
        """Keys in the order of their searches: the heaviest first, or as they are."""
        return sorted(tasks, key=lambda task: -self.of_budget[task]) if self.by_time else [*tasks]


def key_weights(
    settings: RunSettings, tasks: Sequence[Task], stock_us: Mapping[Task, float]
) -> KeyWeights:
    """Weights of the keys of a run.

    Args:
        settings: Settings of the run.
        tasks: Its keys; some of a workload's, where others are kept from an earlier table.
        stock_us: Stock NCCL's time of each.
    """
    if settings.workload is not None:
        keys = [key for key in settings.workload.keys if key.task in tasks]
        of_calls = _step_times_us(keys, stock_us)
        # A workload does not tell where ranks sit.
        by_time = {task: of_calls[replace(task, placement=ANYWHERE)] for task in tasks}
        return KeyWeights(by_time, by_time, by_time=True)
    return KeyWeights(
        {task: settings.weight(task) for task in tasks},
        {task: settings.shape_weight(task.shape) for task in tasks},
        by_time=False,
    )


def _step_times_us(keys: Sequence[KeyCalls], stock_us: Mapping[Task, float]) -> dict[Task, float]:
    times = times_per_step(keys, stock_us)
    sums = {task: sum(of_sizes.values()) for task, of_sizes in times.items()}
    least = _LEAST_SHARE * max(sums.values())
    return {task: max(least, time_us) for task, time_us in sums.items()}


def keys_of(settings: RunSettings, shape: Shape) -> list[Task]:
    """All keys, shape by shape and operation by operation, ascending in size.

    Args:
        settings: Settings of the run.
        shape: Shape of the communicator of all GPUs.
    """
    return [
        Task(operation, size_bytes, own)
        for own in settings.shapes_of(shape)
        for operation in settings.operations
        for size_bytes in settings.sizes_of(operation, own)
    ]


def representative(
    tasks: Sequence[Task], times: KeyWeights | None = None, added: Collection[Task] = ()
) -> list[Task]:
    """The keys that decide the process profile: every second size where sizes are many.

    Where `times` are those of a workload, they are the keys that take longest. Keys that were
    `added` to the ladder take part, and do not make it longer.
    """
    if times is not None and times.by_time:
        heaviest = set(times.in_order(tasks)[:_ENOUGH_KEYS])
        return [task for task in tasks if task in heaviest]
    of_ladder = [task for task in tasks if task not in added]
    sizes = sorted({task.size_bytes for task in of_ladder})
    if len(of_ladder) <= _ENOUGH_KEYS or len(sizes) <= _ENOUGH_SIZES:
        return list(tasks)
    return [task for task in tasks if task in added or task.size_bytes in sizes[::2]]


def ladder_of(task: Task) -> tuple[Collective, Shape, Placement]:
    """Return what the keys of different sizes have in common."""
    return task.operation, task.shape, task.placement


def smaller_neighbour(task: Task, candidates: Iterable[Task]) -> Task | None:
    """The candidate of the next smaller size of the same operation and shape."""
    smaller = [
        candidate
        for candidate in candidates
        if ladder_of(candidate) == ladder_of(task) and candidate.size_bytes < task.size_bytes
    ]
    return max(smaller, key=lambda candidate: candidate.size_bytes, default=None)


def nearest_neighbour(task: Task, candidates: Iterable[Task]) -> Task | None:
    """The candidate of the nearest size of the same operation and shape, by the ratio of sizes."""
    beside = [
        candidate
        for candidate in candidates
        if ladder_of(candidate) == ladder_of(task) and candidate.size_bytes != task.size_bytes
    ]
    return min(
        beside, key=lambda near: abs(math.log(near.size_bytes / task.size_bytes)), default=None
    )


def seed_of(settings: RunSettings, stage: str, task: Task) -> int:
    """A seed for each key and stage, so that the random choices of keys are independent."""
    name = task.full_name if settings.shapes else task.name
    text = f"{settings.options.seed}:{stage}:{name}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
