"""Recursive doubling and halving: partners at distance 1, 2, 4, ... exchange their data.

All_gather by doubling and reduce_scatter by halving, its mirror image, take log2(N) steps and move
no more data than rings do; all_reduce is halving followed by doubling (Rabenseifner), or, with the
whole buffer in every step, doubling alone (Thakur et al. 2005). Where N is no power of two, the
excess ranks are folded: they send their data to a neighbour first and receive the result from it
last, which takes up to two steps more.

On several equal nodes the exchange runs along the rails and inside the nodes, in the order that
sends least data between nodes. It applies where the edges between partners exist: behind switches,
on hypercubes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Reference, Schedule
from synthesizer.experts.hierarchical import Grid
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Program


@dataclass(frozen=True, slots=True)
class Step:
    """Simultaneous transfers of recursive doubling."""

    pairs: tuple[tuple[int, int], ...]
    """Sender and receiver."""
    returns_results: bool = False
    """Whether folded ranks receive results; otherwise all pairs exchange their data."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Gathered blocks that one rank sends another in a recursive-doubling all_gather."""

    src: int
    dst: int
    places: tuple[int, ...]


def exchange_grid(sketch: Sketch) -> Grid | None:
    """Return the ranks by node if nodes are equal, else in one row; None if an edge is missing."""
    rows: dict[int, list[int]] = {}
    for rank, node in enumerate(sketch.node_of_rank):
        rows.setdefault(node, []).append(rank)
    grid: Grid = tuple(tuple(rows[node]) for node in sorted(rows))
    if len({len(row) for row in grid}) > 1:
        grid = (tuple(range(sketch.ranks)),)
    used = (pair for step in (*_across_nodes(grid), *_inside_nodes(grid)) for pair in step.pairs)
    return grid if all(pair in sketch.edge for pair in used) else None


def doubling_all_gather(grid: Grid) -> Program:
    """All_gather: along the rails first, while every rank has only one block."""
    schedule = Schedule(Collective.ALL_GATHER, len(grid) * len(grid[0]))
    for rank in range(schedule.ranks):
        schedule.chunk(rank, INPUT, 0).copy(rank, OUTPUT, rank)
    _double(schedule, _transfers(grid, {rank: rank for row in grid for rank in row}))
    return schedule.program()


def halving_reduce_scatter(grid: Grid) -> Program:
    """Reduce_scatter: the all_gather's transfers in reverse, with sums."""
    schedule = Schedule(Collective.REDUCE_SCATTER, len(grid) * len(grid[0]))
    own = {rank: rank for row in grid for rank in row}
    _halve(schedule, _transfers(grid, own), own)
    return schedule.program()


def halving_doubling_all_reduce(grid: Grid) -> Program:
    """All_reduce: halving, then doubling, over places that make each transfer contiguous.

    Doubling has a channel of its own, so that it does not delay the halving of later data.
    """
    ranks = len(grid) * len(grid[0])
    schedule = Schedule(Collective.ALL_REDUCE, ranks, chunks=ranks)
    rails = zip(*grid, strict=True)
    own = {rank: place for place, rank in enumerate(rank for rail in rails for rank in rail)}
    transfers = _transfers(grid, own)
    _halve(schedule, transfers, own)
    _double(schedule, transfers, channel=1)
    return schedule.program()


def doubling_all_reduce(grid: Grid) -> Program:
    """All_reduce with the whole buffer in every step: few steps, much data."""
    schedule = Schedule(Collective.ALL_REDUCE, len(grid) * len(grid[0]))
    sums = {rank: schedule.chunk(rank, INPUT, 0) for rank in range(schedule.ranks)}
    steps = (*_inside_nodes(grid), *_across_nodes(grid))
    last = {dst: step for step in steps for _, dst in step.pairs}
    for step in steps:
        final = {dst for _, dst in step.pairs if last[dst] is step}
        (_return_results if step.returns_results else _add_up)(sums, step, final)
    return schedule.program()


def _across_nodes(grid: Grid) -> tuple[Step, ...]:
    return _steps(tuple(zip(*grid, strict=True)))


def _inside_nodes(grid: Grid) -> tuple[Step, ...]:
    return _steps(grid)


def _steps(groups: Grid) -> tuple[Step, ...]:
    """Return the steps of recursive doubling in groups of equal size, in parallel."""
    size = len(groups[0])
    power = 1 << (size.bit_length() - 1)
    folded = size - power
    active = [*range(0, 2 * folded, 2), *range(2 * folded, size)]
    fold = tuple((row[2 * i + 1], row[2 * i]) for row in groups for i in range(folded))
    exchanges = (
        tuple((row[active[i]], row[active[i ^ 1 << bit]]) for row in groups for i in range(power))
        for bit in range(power.bit_length() - 1)
    )
    back = tuple((partner, extra) for extra, partner in fold)
    steps = (Step(fold), *map(Step, exchanges), Step(back, returns_results=True))
    return tuple(step for step in steps if step.pairs)


def _transfers(grid: Grid, own: Mapping[int, int]) -> tuple[Transfer, ...]:
    """Return the transfers of an all_gather in order; `own` is the place of each rank's block."""
    held = {rank: {place} for rank, place in own.items()}
    found: list[Transfer] = []
    for step in (*_across_nodes(grid), *_inside_nodes(grid)):
        now = [Transfer(src, dst, tuple(sorted(held[src] - held[dst]))) for src, dst in step.pairs]
        for transfer in now:
            held[transfer.dst].update(transfer.places)
        found += now
    return tuple(found)


def _double(schedule: Schedule, transfers: Iterable[Transfer], channel: int = 0) -> None:
    for transfer in transfers:
        for first, count in _runs(transfer.places):
            blocks = schedule.chunk(transfer.src, OUTPUT, first, count)
            blocks.copy(transfer.dst, OUTPUT, first, channel)


def _halve(schedule: Schedule, transfers: tuple[Transfer, ...], own: Mapping[int, int]) -> None:
    """Run the transfers in reverse; every rank ends with the sum of its own place.

    The transfer that a rank sends first in the all_gather is the one that it completes last here.
    """
    completing = {transfer.src: transfer for transfer in reversed(transfers)}
    summed: set[tuple[int, int]] = set()
    for transfer in reversed(transfers):
        completes = completing[transfer.src] is transfer
        _add_sums(schedule, transfer, own[transfer.src] if completes else None, summed)
        summed.update((transfer.src, place) for place in transfer.places)


def _add_sums(
    schedule: Schedule, transfer: Transfer, completed: int | None, summed: set[tuple[int, int]]
) -> None:
    """Add the partial sums of a transfer's receiver to those of its sender.

    Partial sums lie in scratch at their places; a sum that `summed` lacks is still the input.
    """
    source, target = transfer.dst, transfer.src

    def buffers(place: int) -> tuple[Buffer, Buffer, bool]:
        theirs = SCRATCH if (source, place) in summed else INPUT
        ours = SCRATCH if (target, place) in summed else INPUT
        return theirs, ours, place == completed

    for first, count in _runs(transfer.places, buffers):
        theirs, ours, final = buffers(first)
        total = schedule.chunk(target, ours, first, count)
        added = schedule.chunk(source, theirs, first, count)
        scattered = final and schedule.collective is Collective.REDUCE_SCATTER
        total.reduce(added, OUTPUT if final else SCRATCH, 0 if scattered else first)


def _runs(
    places: Iterable[int], kind: Callable[[int], object] = lambda _: None
) -> list[tuple[int, int]]:
    """Return runs of neighbouring places of one kind as (first, count)."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and place == sum(runs[-1]) and kind(place) == kind(runs[-1][0]):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((place, 1))
    return runs


def _add_up(sums: dict[int, Reference], step: Step, final: set[int]) -> None:
    """Add each sender's sum at its receiver; in place, inputs are read before they are written."""
    arriving = {dst: sums[src] for src, dst in step.pairs}
    overwritten = {dst for dst in final if sums[dst].buffer is INPUT}
    for dst in sorted(overwritten):
        arriving[dst] = arriving[dst].copy(dst, SCRATCH)
    for dst in sorted(arriving, key=lambda rank: rank in overwritten):
        place = (OUTPUT, 0) if dst in final else (SCRATCH, None)
        sums[dst] = sums[dst].reduce(arriving[dst], *place)


def _return_results(sums: dict[int, Reference], step: Step, final: set[int]) -> None:
    for src, dst in step.pairs:
        sums[dst] = sums[src].copy(dst, *((OUTPUT, 0) if dst in final else (SCRATCH, None)))


BUILDERS: Mapping[Collective, Mapping[str, Callable[[Grid], Program]]] = {
    Collective.ALL_GATHER: {"doubling": doubling_all_gather},
    Collective.REDUCE_SCATTER: {"halving": halving_reduce_scatter},
    Collective.ALL_REDUCE: {
        "doubling": doubling_all_reduce,
        "halving_doubling": halving_doubling_all_reduce,
    },
}
"""Algorithms for an exchange grid, by collective and the end of their names."""
