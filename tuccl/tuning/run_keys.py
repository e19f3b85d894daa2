"""The keys of a run: which there are, which stand for all, and which learns from which."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from lookup_tables.table import Shape
from tuccl.trials.config import Task
from tuccl.tuning.settings import RunSettings

_ENOUGH_KEYS, _ENOUGH_SIZES = 36, 12
"""Beyond both, every other size stands for its neighbours; a further operation of few sizes must
not take sizes from the others."""


def keys_of(settings: RunSettings, shape: Shape) -> list[Task]:
    """All of them, operation by operation, ascending in size."""
    return [
        Task(operation, size_bytes, shape)
        for operation in settings.operations
        for size_bytes in settings.sizes_bytes
    ]


def representative(tasks: Sequence[Task]) -> list[Task]:
    """Keys enough to choose a process profile by: of many sizes every other one."""
    sizes = sorted({task.size_bytes for task in tasks})
    if len(tasks) <= _ENOUGH_KEYS or len(sizes) <= _ENOUGH_SIZES:
        return list(tasks)
    return [task for task in tasks if task.size_bytes in sizes[::2]]


def smaller_neighbour(task: Task, others: Iterable[Task]) -> Task | None:
    """The next smaller size of the same operation."""
    smaller = [
        other
        for other in others
        if other.operation is task.operation and other.size_bytes < task.size_bytes
    ]
    return max(smaller, key=lambda other: other.size_bytes, default=None)


def seed_of(settings: RunSettings, stage: str, task: Task) -> int:
    """A seed of the key's own, so that keys do not share their luck."""
    text = f"{settings.options.seed}:{stage}:{task.name}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
