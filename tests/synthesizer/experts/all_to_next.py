"""All-to-next: every rank sends its buffer to the next, across nodes through all NICs at once.

Inside a node that is one copy. The last rank of a node scatters its buffer over the node, each rank
sends its share along its rail, and the first rank of the next node gathers them (MSCCLang section
6.5), with the bandwidth of all NICs of a node. Rank 0 receives nothing, the last rank sends
nothing.

No standard collective does this, so the operation is `custom`: the verifier proves freedom from
deadlock and races, and says that the post-condition is unknown.
"""

from __future__ import annotations

from itertools import pairwise

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Schedule
from synthesizer.experts.hierarchical import Grid, rail_grid
from synthesizer.ir.program import Program


def next_grid(sketch: Sketch) -> Grid | None:
    """Return the grid of a sketch with the needed edges and consecutive ranks per node, or None."""
    grid = rail_grid(sketch)
    if grid is None or [rank for row in grid for rank in row] != list(range(sketch.ranks)):
        return None
    return grid


def all_to_next(grid: Grid) -> Program:
    """Copy the input of rank r to the output of rank r + 1; out of place only."""
    size = len(grid[0])
    schedule = Schedule(Collective.CUSTOM, len(grid) * size, chunks=size, in_place=False)
    for row, next_row in pairwise(grid):
        for index, (sender, receiver) in enumerate(zip(row, next_row, strict=True)):
            share = schedule.chunk(row[-1], INPUT, index)
            if sender != row[-1]:
                share = share.copy(sender, SCRATCH)
            if receiver != next_row[0]:
                share = share.copy(receiver, SCRATCH)
            share.copy(next_row[0], OUTPUT, index)
    for row in grid:
        for rank, following in pairwise(row):
            schedule.chunk(rank, INPUT, 0, size).copy(following, OUTPUT, 0)
    return schedule.program()
