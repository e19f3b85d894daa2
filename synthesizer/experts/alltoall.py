"""Two-step alltoall: a node sends each remote rank one message (MSCCLang section 6.4).

First every rank copies its chunks for rail l to the l-th rank of its own node; then each rank sends
all chunks of its node for a rank of its rail in one message. Each NIC carries the same bytes as in
a direct alltoall, in one message per remote node. It applies to equal nodes of two or more ranks
where each node and each rail is fully connected; no other edges between nodes are needed. Where all
ranks are connected, `all_pairs` has the direct form.
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
        for row, remote_row in pairs:
            for local, rank in enumerate(row):
                for place in _rotated(local, size):
                    chunk = schedule.chunk(row[place], INPUT, remote_row[local])
                    chunk.copy(rank, SCRATCH, first + place)
        for row, remote_row in pairs:
            for rank, target in zip(row, remote_row, strict=True):
                _send_on(schedule, rank, first, row, target)
    for row in grid:
        for local, rank in enumerate(row):
            for peer in (row[place] for place in _rotated(local, size)):
                schedule.chunk(rank, INPUT, peer).copy(peer, OUTPUT, rank)
    return schedule.program()


def _send_on(schedule: Schedule, rank: int, first: int, row: tuple[int, ...], target: int) -> None:
    """Send the chunks of a node gathered at `rank`, in one message per run of the output."""
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[end - 1] + 1:
            waiting = schedule.chunk(rank, SCRATCH, first + start, end - start)
            waiting.copy(target, OUTPUT, row[start])
            start = end


def _rotated(local: int, size: int) -> list[int]:
    """Return the places of a node in turn from `local`, so that ranks start with different ones."""
    return [(local + distance) % size for distance in range(size)]
