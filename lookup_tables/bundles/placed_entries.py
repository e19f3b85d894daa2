"""The bundle's sections PLACEMENTS and PLACED_ENTRIES: entries by where ranks sit.

A record of PLACEMENTS is a class of communicators of a shape, for one operation: NCCL's estimate as
a line, and the class's entries. The records of a shape and operation follow one another, two or
more, since a single class has nothing to be told from. Format: docs/reference/bundle-format.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lookup_tables import bundle_layout as layout
from lookup_tables.lookup import MOST_PLACEMENTS, PLACEMENT_TOLERANCE
from lookup_tables.table import Entry, EstimateLine, Operation, SeenPlacement, Shape


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """A class of communicators, for one operation."""

    shape: Shape
    operation: Operation
    line: EstimateLine
    first: int
    count: int
    tolerance: float
    """Relative distance from the line up to which an estimate is of the class."""


def placement_records(
    placements: Sequence[SeenPlacement], shapes: Sequence[Shape]
) -> tuple[bytes, tuple[Entry, ...]]:
    """Return the section PLACEMENTS, and the entries that it refers to in their order.

    Args:
        placements: Those of a table.
        shapes: Shapes in the order of the section SHAPES.
    """
    records, entries = [], list[Entry]()
    for index, shape in enumerate(shapes):
        of_shape = [own for own in placements if own.shape == shape]
        for code, operation in enumerate(layout.OPERATIONS):
            found = [
                [entry for entry in own.entries if entry.key.operation is operation]
                for own in of_shape
            ]
            for own, of_class in zip(of_shape if any(found) else (), found, strict=False):
                line = dict(own.lines)[operation]
                records.append(
                    layout.PLACEMENT.pack(
                        index, code, line.latency_us, line.us_per_byte,
                        len(entries), len(of_class), PLACEMENT_TOLERANCE, 0,
                    )
                )  # fmt: skip
                entries += of_class
    return b"".join(records), tuple(entries)


def read_placement_records(
    data: bytes, shapes: Sequence[Shape], entry_count: int
) -> tuple[PlacementRecord, ...]:
    """Return the records of the section PLACEMENTS.

    Args:
        data: The section.
        shapes: Shapes of the section SHAPES.
        entry_count: Number of records in PLACED_ENTRIES.

    Raises:
        ValueError: They contradict themselves.
    """
    found: list[PlacementRecord] = []
    places, following = [], 0
    for raw in layout.PLACEMENT.iter_unpack(data):
        index, code, latency_us, us_per_byte, first, count, tolerance, zero = raw
        figures = (latency_us, us_per_byte, tolerance)
        if not all(math.isfinite(figure) and figure > 0.0 for figure in figures):
            raise ValueError(f"an estimate of {latency_us} us and {us_per_byte} us per byte")
        if index >= len(shapes) or code > layout.LAST_ASKED_ABOUT or zero != 0 or tolerance >= 1.0:
            raise ValueError(f"a placement of shape {index} and operation {code}")
        if first != following or count > entry_count - first:
            raise ValueError(f"placed entry {following} is in no placement, or in two")
        following += count
        places.append((index, code))
        line = EstimateLine(latency_us, us_per_byte)
        shape, operation = shapes[index], layout.OPERATIONS[code]
        found.append(PlacementRecord(shape, operation, line, first, count, tolerance))
    if places != sorted(places) or following != entry_count:
        raise ValueError("placements are not in order, or leave entries over")
    if not all(2 <= count <= MOST_PLACEMENTS for count in Counter(places).values()):
        raise ValueError("an operation has a single placement, or too many")
    return tuple(found)
