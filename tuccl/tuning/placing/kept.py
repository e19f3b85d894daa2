"""Entries of single communicators that a change of the machine leaves as they are.

A change may touch some communicators of a shape alone: those of the host whose NVLink slowed. Where
the plugin tells the others apart, as communicators with entries of their own, these were measured
before: as a placement of the old table, or together with those that were alike then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lookup_tables.table import Entry, SeenPlacement, Shape
from probes.topology.graph import Topology
from tuccl.models.communicator_parts import parts_by_sibling
from tuccl.models.placements import placements
from tuccl.search.trials.placement import ANYWHERE, Placement

KeptEntries = Mapping[tuple[Shape, Placement], tuple[Entry, ...]]
"""Entries of communicators that need not be measured again; none: NCCL's own choice stays."""


def kept_entries(
    before: Topology,
    now: Topology,
    shapes: Iterable[Shape],
    told_apart: Iterable[SeenPlacement],
    by_settings: Callable[[Shape], tuple[Entry, ...] | None],
) -> KeptEntries:
    """Return the entries of communicators that a change does not touch, of shapes that it touches.

    Args:
        before: Machine of the old table.
        now: The machine now.
        shapes: Shapes that are measured again; the old table has all of their keys.
        told_apart: Communicators with entries of their own in the old table.
        by_settings: The old table's entries for any communicators of a shape, by built-in settings;
            None if they are unknown.
    """
    old = tuple(told_apart)
    kept = {}
    for shape in shapes:
        classes = placements(now, shape)
        for own in classes if len(classes) > 1 else ():
            part = _only_part(now, shape, own.placement)
            found = None if part is None else _entries_of(part, before, shape, old, by_settings)
            if found is not None:
                kept[shape, own.placement] = found
    return kept


def _only_part(topology: Topology, shape: Shape, placement: Placement) -> str | None:
    """Return the part of the machine that each of some siblings uses; None if they differ."""
    parts = parts_by_sibling(topology, shape, placement.stride)
    found = {parts.get(number) for number in placement.siblings or parts}
    return found.pop() if len(found) == 1 else None


def _entries_of(
    part: str,
    before: Topology,
    shape: Shape,
    told_apart: Iterable[SeenPlacement],
    by_settings: Callable[[Shape], tuple[Entry, ...] | None],
) -> tuple[Entry, ...] | None:
    """Return the entries that communicators with this part had before; None if they are unknown."""
    old = [own for own in told_apart if own.shape == shape]
    for own in old:
        timed = own.timed
        if timed is not None:
            placement = Placement(timed.stride, timed.siblings)
            if _only_part(before, shape, placement) == part:
                return own.entries
    if old or _only_part(before, shape, ANYWHERE) != part:
        return None
    return by_settings(shape)
