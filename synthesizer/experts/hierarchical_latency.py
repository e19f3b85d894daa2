"""All_reduce over nodes in two or three steps: all-pairs inside the nodes, all-pairs along rails.

These are for small buffers on several nodes, where the four steps of the bandwidth form
(`hierarchical`) cost more than the data. In two steps every rank sums up its node's buffers, then
those sums along its rail: (nodes - 1) buffers go through each NIC. In three steps each rank does so
for its part of the buffer and hands the result to its node; NICs then carry as many times less as a
node has ranks, which on two nodes is no more than the bandwidth form needs.

They apply to equal nodes of two or more ranks, each linked all to all, as is each rail.
"""

from __future__ import annotations

from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Reference, Schedule
from synthesizer.experts.hierarchical import Grid
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Program


def two_step_all_reduce(grid: Grid) -> Program:
    """All_reduce: the node's sum everywhere in the node, then the sum of these along each rail."""
    schedule = Schedule(Collective.ALL_REDUCE, len(grid) * len(grid[0]))
    buffers = {rank: schedule.chunk(rank, INPUT, 0) for row in grid for rank in row}
    sums = {rank: _sum(buffers, rank, row, SCRATCH, None) for row in grid for rank in row}
    for rail in zip(*grid, strict=True):
        for rank in rail:
            _sum(sums, rank, rail, OUTPUT, 0)
    return schedule.program()


def three_step_all_reduce(grid: Grid) -> Program:
    """All_reduce: each rank sums its part over its node, then over its rail, and gives it away.

    What is given away has a channel of its own: it does not hold up sums of later data.
    """
    size = len(grid[0])
    schedule = Schedule(Collective.ALL_REDUCE, len(grid) * size, chunks=size)
    parts = list(enumerate(zip(*grid, strict=True)))
    sums: dict[int, Reference] = {}
    for part, rail in parts:
        inputs = {rank: schedule.chunk(rank, INPUT, part) for row in grid for rank in row}
        for rank, row in zip(rail, grid, strict=True):
            sums[rank] = _sum(inputs, rank, row, SCRATCH, None)
    for part, rail in parts:
        for rank in rail:
            _sum(sums, rank, rail, OUTPUT, part)
    for part, rail in parts:
        for rank, row in zip(rail, grid, strict=True):
            for peer in _others(rank, row):
                schedule.chunk(rank, OUTPUT, part).copy(peer, OUTPUT, part, channel=1)
    return schedule.program()


def _sum(
    values: dict[int, Reference],
    rank: int,
    group: tuple[int, ...],
    buffer: Buffer,
    index: int | None,
) -> Reference:
    """What the ranks of a group have, summed up at one of them."""
    total = values[rank]
    for peer in _others(rank, group):
        begun = total is not values[rank]
        total = total.reduce(values[peer], *(() if begun else (buffer, index)))
    return total


def _others(rank: int, group: tuple[int, ...]) -> tuple[int, ...]:
    """The rest of a group, nearest above first, so that not all start with the same one."""
    at = group.index(rank)
    return group[at + 1 :] + group[:at]
