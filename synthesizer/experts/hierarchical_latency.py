"""All_reduce over nodes in two or three steps: all-pairs inside the nodes, all-pairs along rails.

These are for small buffers on several nodes, where the four steps of the bandwidth form
(`hierarchical`) cost more than the data. In two steps every rank sums its node's buffers, then
these sums along its rail: each NIC carries (nodes - 1) buffers. In three steps each rank does so
for its share of the buffer and copies the result to its node; with L ranks per node a NIC carries
1/L as much, which on two nodes is no more than the bandwidth form needs.

They apply to equal nodes of two or more ranks where each node and each rail is fully connected.
"""

from __future__ import annotations

from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Reference, Schedule
from synthesizer.experts.hierarchical import Grid
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Program


def two_step_all_reduce(grid: Grid) -> Program:
    """All_reduce: every rank sums over its node, then sums these along its rail."""
    schedule = Schedule(Collective.ALL_REDUCE, len(grid) * len(grid[0]))
    buffers = {rank: schedule.chunk(rank, INPUT, 0) for row in grid for rank in row}
    sums = {rank: _sum(buffers, rank, row, SCRATCH, None) for row in grid for rank in row}
    for rail in zip(*grid, strict=True):
        for rank in rail:
            _sum(sums, rank, rail, OUTPUT, 0)
    return schedule.program()


def three_step_all_reduce(grid: Grid) -> Program:
    """All_reduce: each rank sums its share over its node, then its rail, and copies it to its node.

    The final copies have a channel of their own, so that they do not delay sums of later data.
    """
    size = len(grid[0])
    schedule = Schedule(Collective.ALL_REDUCE, len(grid) * size, chunks=size)
    rails = list(enumerate(zip(*grid, strict=True)))
    sums: dict[int, Reference] = {}
    for share, rail in rails:
        inputs = {rank: schedule.chunk(rank, INPUT, share) for row in grid for rank in row}
        for rank, row in zip(rail, grid, strict=True):
            sums[rank] = _sum(inputs, rank, row, SCRATCH, None)
    for share, rail in rails:
        for rank in rail:
            _sum(sums, rank, rail, OUTPUT, share)
    for share, rail in rails:
        for rank, row in zip(rail, grid, strict=True):
            for peer in _others(rank, row):
                schedule.chunk(rank, OUTPUT, share).copy(peer, OUTPUT, share, channel=1)
    return schedule.program()


def _sum(
    values: dict[int, Reference],
    rank: int,
    group: tuple[int, ...],
    buffer: Buffer,
    index: int | None,
) -> Reference:
    """Sum the values of a group's ranks at one of them."""
    total = values[rank]
    for peer in _others(rank, group):
        begun = total is not values[rank]
        total = total.reduce(values[peer], *(() if begun else (buffer, index)))
    return total


def _others(rank: int, group: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rest of a group, starting with the next, so that not all start with the same."""
    at = group.index(rank)
    return group[at + 1 :] + group[:at]
