"""Classes of communicators that NCCL's own estimates tell apart.

The tuner plugin is handed NCCL's table of estimated times with each call. NCCL computes it from the
paths between a communicator's ranks, alike on all of them. The estimate of ring with Simple, which
every machine can run, is a line over the size, and its slope is the bandwidth that NCCL found. So
classes whose slopes differ can have entries of their own; the plugin recognises them by their
lines. Classes of equal slopes share their entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lookup_tables.collective import ASKED_ABOUT, Collective
from lookup_tables.lookup import MOST_PLACEMENTS, PLACEMENT_TOLERANCE
from lookup_tables.table import EstimateLine, Shape
from tuccl.models.placements import PlacementClass
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import Placement

Estimate = Callable[[Task], float | None]
"""NCCL's estimate for ring with Simple in us, on a task's communicators; None if none is known."""
_APART = 5 * PLACEMENT_TOLERANCE
"""Relative difference of two slopes from which on large messages tell classes apart."""
_SIZES = (4 << 20, 64 << 20)
"""Sizes that a line is drawn through: estimates of large messages have no steps."""
Lines = tuple[tuple[Collective, EstimateLine], ...]


@dataclass(frozen=True, slots=True)
class SeenClass:
    """Classes of a shape that look alike to the plugin, and differ from all others."""

    classes: tuple[PlacementClass, ...]
    lines: Lines

    @property
    def placement(self) -> Placement:
        """The slowest of the classes, which counts when one call is chosen for all of them."""
        return min(self.classes, key=lambda own: own.figures.speed).placement

    @property
    def example(self) -> tuple[str, ...]:
        """GPUs of the first communicator."""
        return self.classes[0].example


def seen_classes(
    shape: Shape,
    classes: Sequence[PlacementClass],
    operations: Sequence[Collective],
    estimate: Estimate,
) -> tuple[SeenClass, ...]:
    """Return the classes that the plugin can tell apart; none if it can tell none apart.

    Args:
        shape: Shape of the communicators.
        classes: Its classes.
        operations: Operations that are tuned.
        estimate: NCCL's estimates.
    """
    asked = [each for each in ASKED_ABOUT if each in operations]
    if len(classes) < 2 or not asked:
        return ()
    groups: list[tuple[Lines, list[PlacementClass]]] = []
    for own in classes:
        lines = _lines(shape, own.placement, asked, estimate)
        if lines is None:
            return ()
        for known, members in groups:
            if _look_alike(known, lines):
                members.append(own)
                break
        else:
            groups.append((lines, [own]))
    if not 2 <= len(groups) <= MOST_PLACEMENTS:
        return ()
    return tuple(SeenClass(tuple(members), lines) for lines, members in groups)


def _lines(
    shape: Shape, placement: Placement, operations: Sequence[Collective], estimate: Estimate
) -> Lines | None:
    found = []
    for operation in operations:
        line = _line(Task(operation, 0, shape, placement), estimate)
        if line is None:
            return None
        found.append((operation, line))
    return tuple(found)


def _line(task: Task, estimate: Estimate) -> EstimateLine | None:
    """Return the line through the estimates of two large sizes."""
    small, large = (replace(task, size_bytes=size).called_bytes for size in _SIZES)
    times = [estimate(replace(task, size_bytes=size)) for size in (small, large)]
    if times[0] is None or times[1] is None:
        return None
    us_per_byte = (times[1] - times[0]) / (large - small)
    latency_us = times[0] - us_per_byte * small
    return EstimateLine(latency_us, us_per_byte) if min(us_per_byte, latency_us) > 0.0 else None


def _look_alike(first: Lines, second: Lines) -> bool:
    """Whether the slopes of some operation are too close to be told apart."""
    return any(
        max(a.us_per_byte, b.us_per_byte) <= (1.0 + _APART) * min(a.us_per_byte, b.us_per_byte)
        for (_, a), (_, b) in zip(first, second, strict=True)
    )


def placed_tasks(
    tasks: Sequence[Task], seen: Mapping[Shape, Sequence[SeenClass]]
) -> tuple[Task, ...]:
    """Return the keys of the classes that are tuned apart, for those of all siblings."""
    return tuple(
        replace(task, placement=own.placement)
        for task in tasks
        if task.operation.asks_tuner
        for own in seen.get(task.shape, ())
    )
