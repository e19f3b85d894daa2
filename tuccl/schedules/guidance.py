"""Choice of the sketches that are worth trying for an operation and size.

The figures that `sketches.guidance` compares are the bounds of each sketch. They cost
milliseconds where a search costs seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lookup_tables.collective import Collective
from sketches.guidance import CandidateFigures, size_ranges
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import (
    MOST_SEPARATED_RANKS,
    algbw_bound_gb_per_s,
    latency_bound_us,
)
from synthesizer.experts import rails_suffice


def guided(
    collectives: Iterable[Collective], sketches: Sequence[Sketch], root: int = 0
) -> tuple[Sketch, ...]:
    """Return the sketches with the sizes that each is worth trying for.

    Above `MOST_SEPARATED_RANKS` bounds are too loose to tell, and all sketches stay as they are;
    so they do for a root that is no rank, which is for the synthesis to refuse.

    Raises:
        ScheduleError: HiGHS fails on a bound.
    """
    ranks = sketches[0].ranks
    if len(sketches) < 2 or ranks > MOST_SEPARATED_RANKS or not 0 <= root < ranks:
        return tuple(sketches)
    for collective in collectives:
        figures = [_figures(collective, sketch, root) for sketch in sketches]
        # The halves of all_reduce follow each other.
        ranges = size_ranges(collective.value, figures, collective.passes)
        sketches = [
            replace(sketch, sizes=(*sketch.sizes, sizes))
            for sketch, sizes in zip(sketches, ranges, strict=True)
        ]
    return tuple(sketches)


def worth_trying(
    collective: Collective, sketches: Sequence[Sketch], sizes_bytes: Sequence[int]
) -> tuple[Sequence[Sketch], dict[str, str]]:
    """Return the sketches to try for some of these sizes, and reasons against the others by name.

    A single sketch is tried anyway. Where the rail exchanges of the first one suffice, the others
    are not tried: they have the same NICs or fewer.
    """
    if len(sketches) == 1:
        return sketches, {}
    first, *others = sketches
    if all(rails_suffice(collective, first, size_bytes) for size_bytes in sizes_bytes):
        return [first], {
            sketch.name: f"the rail exchanges on {first.name} keep all NICs busy at this size"
            for sketch in others
        }
    given = [(sketch.name, sketch.sizes_of(collective.value)) for sketch in sketches]
    left_out = {
        name: sizes.reason
        for name, sizes in given
        if sizes and not any(map(sizes.holds, sizes_bytes))
    }
    return [sketch for sketch in sketches if sketch.name not in left_out], left_out


def _figures(collective: Collective, sketch: Sketch, root: int) -> CandidateFigures:
    return CandidateFigures(
        sketch.name,
        len(sketch.edges),
        latency_bound_us(collective, sketch, root),
        algbw_bound_gb_per_s(collective, sketch, root),
    )
