"""All-to-next: every rank sends its buffer to the next one, across nodes through all NICs at once.

Inside a node that is one copy. The last rank of a node spreads its buffer over the node, each rank
sends a part along its rail, and the first rank of the next node collects them (MSCCLang section
6.5): as many times the bandwidth of one NIC as a node has. Rank 0 receives nothing, the last rank
sends nothing.

No standard collective does this, so the operation is `custom`: the verifier proves that it neither
deadlocks nor races, and says that nobody can tell it the right result.
"""

from __future__ import annotations

from itertools import pairwise

from sketches.sketch import Sketch
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Schedule
from synthesizer.experts.hierarchical import Grid, rail_grid
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Program


def next_grid(sketch: Sketch) -> Grid | None:
    """The grid of a sketch with all edges needed and nodes of consecutive ranks, else None."""
    grid = rail_grid(sketch)
    if grid is None or [rank for row in grid for rank in row] != list(range(sketch.ranks)):
        return None
    return grid


def all_to_next(grid: Grid) -> Program:
    """Output of rank r + 1 becomes the input of rank r; out of place only."""
    size = len(grid[0])
    schedule = Schedule(Collective.CUSTOM, len(grid) * size, chunks=size, in_place=False)
    for here, there in pairwise(grid):
        for part, (out, into) in enumerate(zip(here, there, strict=True)):
            moving = schedule.chunk(here[-1], INPUT, part)
            if out != here[-1]:
                moving = moving.copy(out, SCRATCH)
            if into != there[0]:
                moving = moving.copy(into, SCRATCH)
            moving.copy(there[0], OUTPUT, part)
    for row in grid:
        for rank, following in pairwise(row):
            schedule.chunk(rank, INPUT, 0, size).copy(following, OUTPUT, 0)
    return schedule.program()
