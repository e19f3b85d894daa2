"""Calls on communicators that have entries of their own by where their ranks sit.

The Parquet file of a table says on which siblings the entries of a placement were timed. The same
siblings are there where as many ranks run as were tuned. Those inside hosts are also there on one
host of several that are alike.
"""

from __future__ import annotations

from lookup_tables.collective import Collective
from lookup_tables.lookup import lookup
from lookup_tables.table import Entry, SeenPlacement, Shape, Table
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.search.trials.shapes import memberships, shape_text


def placements_here(
    table: Table | None, operation: Collective, shape: Shape, whole: Shape
) -> list[Placement]:
    """Return the kinds of a shape's communicators that a call is timed on.

    All siblings together where none of them have entries of their own, or others run here.

    Args:
        table: A table; None: it is not known.
        operation: Operation of the call.
        shape: Shape of its communicators.
        whole: Shape of the communicator of all ranks here.
    """
    found = [
        own
        for own in (() if table is None else table.placements)
        if own.shape == shape and operation in dict(own.lines)
    ]
    if table is None or not all(_is_here(table, own, whole) for own in found):
        return [ANYWHERE]
    return [placement for own in found if (placement := _timed_on(own))] or [ANYWHERE]


def untimed_note(table: Table | None, whole: Shape) -> str:
    """Say why no entries by where ranks sit are timed; empty where they are, or there are none."""
    for own in () if table is None else table.placements:
        if table is None or memberships(own.shape, whole) is None or _is_here(table, own, whole):
            continue
        if own.timed is None:
            return "the table does not say on which GPUs its entries by where ranks sit were timed"
        return (
            f"entries by where ranks sit were timed with {shape_text(own.timed.machine)}, here run "
            f"{shape_text(whole)}: all communicators of {shape_text(own.shape)} are timed together"
        )
    return ""


def placement_of(table: Table | None, task: Task) -> SeenPlacement | None:
    """Return the communicators with entries of their own that a call's are.

    None where a call's are of several kinds, or the table does not tell.
    """
    for own in () if table is None else table.placements:
        if table is None or own.shape != task.shape:
            continue
        is_all = task.placement == ANYWHERE and _has_all(table, own)
        if is_all or _timed_on(own) == task.placement:
            return own
    return None


def stated_entry(table: Table, task: Task) -> Entry | None:
    """Return the entry whose times are of a call's communicators; None: the table states none."""
    call = (task.operation, task.size_bytes, task.shape)
    own = placement_of(table, task)
    placed = None if own is None else lookup(own.entries, *call)
    if placed is not None:
        return placed
    alike = [each for each in table.placements if each.shape == task.shape]
    if own is None and any(lookup(each.entries, *call) for each in alike):
        return None  # Some of the communicators may run these.
    # The entry of the shape was timed on all neighbours.
    is_as_timed = task.placement == ANYWHERE or (own is not None and _has_all(table, own))
    return lookup(table.entries, *call) if is_as_timed else None


def _timed_on(own: SeenPlacement) -> Placement | None:
    timed = own.timed
    return None if timed is None else Placement(timed.stride, timed.siblings)


def _is_here(table: Table, own: SeenPlacement, whole: Shape) -> bool:
    """Whether the siblings on which a placement was timed are among the ranks here."""
    timed = own.timed
    if timed is None or memberships(own.shape, whole, timed.stride) is None:
        return False
    if timed.machine == whole:
        return True
    is_same_host = timed.machine.ranks_per_node == whole.ranks_per_node
    return whole.nodes == 1 and is_same_host and _are_of_one_host(table, own.shape)


def _has_all(table: Table, own: SeenPlacement) -> bool:
    """Whether a placement has all siblings of the division that a shape is timed on."""
    timed = own.timed
    if timed is None or timed.stride != 1:
        return False
    ranks = timed.machine.ranks
    if _are_of_one_host(table, own.shape):
        ranks = timed.machine.ranks_per_node
    return len(timed.siblings) == ranks // own.shape.ranks


def _are_of_one_host(table: Table, shape: Shape) -> bool:
    """Whether a shape's kinds are those of one host, since all hosts are alike."""
    timed = [own.timed for own in table.placements if own.shape == shape]
    return shape.nodes == 1 and all(
        each is not None and max(each.siblings) < each.machine.ranks_per_node // shape.ranks
        for each in timed
    )
