"""Two-step alltoall: what a node sends to a rank elsewhere crosses as one message (MSCCLang 6.4).

First every rank hands its chunks for rail l to the l-th rank of its own node, then each rank sends
all that its node has for a rank of its rail in one message. Each NIC carries the same bytes as when
everybody sends directly, in as many messages as there are other nodes. It applies to equal nodes of
two or more ranks, each linked all to all, as is each rail: no other edges between nodes are needed.
Where all ranks are linked, `all_pairs` has the direct form.
"""

from __future__ import annotations

from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Schedule
from synthesizer.experts.hierarchical import Grid
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Program


def two_step_alltoall(grid: Grid) -> Program:
    """Alltoall; out of place only, since every output overlaps another's input."""
    size = len(grid[0])
    schedule = Schedule(Collective.ALLTOALL, len(grid) * size, in_place=False)
    for distance in range(1, len(grid)):
        first = (distance - 1) * size
        pairs = [(row, grid[(node + distance) % len(grid)]) for node, row in enumerate(grid)]
        for here, there in pairs:
            for local, rank in enumerate(here):
                for place in _from(local, size):
                    chunk = schedule.chunk(here[place], INPUT, there[local])
                    chunk.copy(rank, SCRATCH, first + place)
        for here, there in pairs:
            for rank, target in zip(here, there, strict=True):
                _send_on(schedule, rank, first, here, target)
    for row in grid:
        for local, rank in enumerate(row):
            for peer in (row[place] for place in _from(local, size)):
                schedule.chunk(rank, INPUT, peer).copy(peer, OUTPUT, rank)
    return schedule.program()


def _send_on(schedule: Schedule, rank: int, first: int, row: tuple[int, ...], target: int) -> None:
    """Sends a node's chunks that wait at `rank`, as few messages as the output's order allows."""
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[end - 1] + 1:
            waiting = schedule.chunk(rank, SCRATCH, first + start, end - start)
            waiting.copy(target, OUTPUT, row[start])
            start = end


def _from(local: int, size: int) -> list[int]:
    """Places in a node beginning with one, so that not all start with the same."""
    return [(local + distance) % size for distance in range(size)]
