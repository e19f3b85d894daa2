"""Keys of a run: all of them, the subset that decides the process profile, and neighbours."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from tuccl.lookup_tables.table import Shape
from tuccl.trials.config import Task
from tuccl.tuning.settings import RunSettings

_ENOUGH_KEYS, _ENOUGH_SIZES = 36, 12
"""Above both limits every second size is left out. Both count, so that one more operation does not
thin out a short ladder."""


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
        for size_bytes in settings.sizes_bytes
    ]


def representative(tasks: Sequence[Task]) -> list[Task]:
    """The keys that decide the process profile: every second size where sizes are many."""
    sizes = sorted({task.size_bytes for task in tasks})
    if len(tasks) <= _ENOUGH_KEYS or len(sizes) <= _ENOUGH_SIZES:
        return list(tasks)
    return [task for task in tasks if task.size_bytes in sizes[::2]]


def smaller_neighbour(task: Task, candidates: Iterable[Task]) -> Task | None:
    """The candidate of the next smaller size of the same operation and shape."""
    smaller = [
        candidate
        for candidate in candidates
        if (candidate.operation, candidate.shape) == (task.operation, task.shape)
        and candidate.size_bytes < task.size_bytes
    ]
    return max(smaller, key=lambda candidate: candidate.size_bytes, default=None)


def seed_of(settings: RunSettings, stage: str, task: Task) -> int:
    """A seed for each key and stage, so that the random choices of keys are independent."""
    name = task.full_name if settings.shapes else task.name
    text = f"{settings.options.seed}:{stage}:{name}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
