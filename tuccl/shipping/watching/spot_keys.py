"""Choice of the keys that a watch measures: few, over all operations and sizes."""

from __future__ import annotations

from dataclasses import replace

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.shapes import memberships
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.placed_calls import placements_here

MOST_KEYS = 9
_BANDS_UP_TO = (64 << 10, 4 << 20, 256 << 20)
"""Largest size of small, middle and large messages; above, a call takes too much memory."""


def spot_keys(table: ShippedTable, whole: Shape) -> tuple[Task, ...]:
    """Return the keys with a stated gain that are measured; empty where none fits this host.

    Of each operation, the key of each band of sizes that gains most, since it has most to lose;
    then further keys by their gain.

    Args:
        table: The table.
        whole: Shape of the communicator of this host's GPUs.
    """
    gains = {
        task: stated.gain.ratio
        for task in _fitting(table, whole)
        if task.size_bytes <= _BANDS_UP_TO[-1] and (stated := table.stated(task))
    }
    ranked = sorted(gains, key=lambda task: (-gains[task], _order(task)))
    best: dict[tuple[Collective, int], Task] = {}
    for task in ranked:
        best.setdefault((task.operation, _band(task.size_bytes)), task)
    operations = sorted({operation for operation, _ in best})
    bands = len(_BANDS_UP_TO)
    # Each round takes another band of each operation, so that few keys reach all of both.
    places = [
        (operation, (number + turn) % bands)
        for turn in range(bands)
        for number, operation in enumerate(operations)
    ]
    first = [best[place] for place in places if place in best]
    chosen = list(dict.fromkeys([*first, *ranked]))[:MOST_KEYS]
    return tuple(sorted(chosen, key=_order))


def _fitting(table: ShippedTable, whole: Shape) -> list[Task]:
    """Return the tuned keys of the largest communicator that this host can have.

    Communicators with entries of their own are measured apart from others of their shape.
    """
    entries = () if table.table is None else table.table.all_entries
    tasks = [Task(e.key.operation, e.tuned_bytes, e.key.shape) for e in entries]
    fitting = [task for task in tasks if memberships(task.shape, whole) is not None]
    largest = max((task.shape for task in fitting), key=lambda shape: shape.ranks, default=whole)
    placed = [
        replace(task, placement=placement)
        for task in fitting
        if task.shape == largest
        for placement in placements_here(table.table, task.operation, task.shape, whole)
    ]
    return list(dict.fromkeys(placed))


def _order(task: Task) -> tuple[Collective, int, Placement]:
    return task.operation, task.size_bytes, task.placement


def _band(size_bytes: int) -> int:
    return next(band for band, most in enumerate(_BANDS_UP_TO) if size_bytes <= most)
