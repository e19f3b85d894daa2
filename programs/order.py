"""Makes a program say what else its schedule leaves to the way of messages.

A step that reads or overwrites what another threadblock of its rank has written may come after it
only because a message went out after the one and came back before the other. That is enough where a
message carries everything its sender did before; the lines of LL and LL128 carry themselves alone.
So wherever a rank's own order, of its threadblocks and dependences, does not put one before the
other, the later step waits for the earlier explicitly; if it waits already, through a `nop` before
it. A step that overwrites what another has only read needs no such help: what came back depends on
what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from programs.flow import StepPlace
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.ir.layout import Layout, layout
from synthesizer.ir.wiring import READS_SRC, WRITES_DST

_NOWHERE = ChunkRef(Buffer.INPUT, 0)


def with_explicit_order(algorithm: Algorithm, order: Sequence[StepPlace]) -> Algorithm:
    """The schedule with the dependences that it needs where messages carry no order.

    Args:
        algorithm: One that `programs.flow` found right.
        order: All its steps, in an order in which they may run.

    Returns:
        The schedule itself where it needs no more.
    """
    gpus = []
    for gpu in algorithm.programs:
        clocks = _Clocks(algorithm, gpu)
        for rank, block, step in order:
            if rank == gpu.rank:
                clocks.run(StepRef(block, step))
        blocks = _emit(gpu.threadblocks, clocks.waits) if clocks.found else gpu.threadblocks
        gpus.append(replace(gpu, threadblocks=blocks))
    ordered = replace(algorithm, programs=tuple(gpus))
    return algorithm if ordered == algorithm else ordered


class _Clocks:
    """What is done before each step, by the rank's own order alone."""

    def __init__(self, algorithm: Algorithm, gpu: GpuProgram) -> None:
        self.blocks = gpu.threadblocks
        self.clock: dict[StepRef, tuple[int, ...]] = {}
        self.now = [[0] * len(self.blocks) for _ in self.blocks]
        self.waits: dict[StepRef, list[StepRef]] = {}
        self.found = False
        """Whether anything was missing."""
        ways = [False, True] if algorithm.in_place else [False]
        self.writers: list[tuple[Layout, dict[int, StepRef]]] = [
            (layout(algorithm, gpu.rank, in_place=in_place), {}) for in_place in ways
        ]
        """Who wrote an address last, for a call out of place and for one in place."""

    def run(self, here: StepRef) -> None:
        """Take a step: what it must wait for and does not is added."""
        step = self.blocks[here.threadblock].steps[here.step]
        waits = self.waits[here] = [] if step.depends is None else [step.depends]
        clock = self.now[here.threadblock]
        for awaited in waits:
            self._learn(clock, awaited)
        missing = {
            writers[address]
            for lay, writers in self.writers
            for address in _touched(step, lay)
            if address in writers and writers[address].threadblock != here.threadblock
        }
        # The latest first: what it waits for need not be waited for again.
        for other in sorted(missing, key=lambda place: (-place.step, place.threadblock)):
            if clock[other.threadblock] <= other.step:
                waits.append(other)
                self.found = True
                self._learn(clock, other)
        clock[here.threadblock] = here.step + 1
        self.clock[here] = tuple(clock)
        for lay, writers in self.writers:
            writers.update(dict.fromkeys(_written(step, lay), here))

    def _learn(self, clock: list[int], awaited: StepRef) -> None:
        clock[:] = map(max, clock, self.clock[awaited])


def _touched(step: Step, lay: Layout) -> list[int]:
    read = _addresses(lay, step.src, step.count) if step.type in READS_SRC else []
    # A sum into its destination reads that too.
    return [*read, *_written(step, lay)]


def _written(step: Step, lay: Layout) -> Sequence[int]:
    if step.type not in WRITES_DST:
        return ()
    written = _addresses(lay, step.dst, step.count)
    moves_nothing = step.type is StepType.COPY and written == _addresses(lay, step.src, step.count)
    return () if moves_nothing else written


def _addresses(lay: Layout, place: ChunkRef, count: int) -> Sequence[int]:
    first = lay.address(place)
    return range(first, first + count)


def _emit(
    blocks: Sequence[Threadblock], waits: dict[StepRef, list[StepRef]]
) -> tuple[Threadblock, ...]:
    """Steps wait for one other step each, so `nop`s before them wait for the rest."""
    moved: dict[StepRef, StepRef] = {}
    for block in blocks:
        at = -1
        for number in range(len(block.steps)):
            here = StepRef(block.id, number)
            at += max(1, len(waits[here]))
            moved[here] = StepRef(block.id, at)

    def steps_of(block: Threadblock) -> Iterator[Step]:
        for number, step in enumerate(block.steps):
            awaited: list[StepRef | None] = [
                moved[place] for place in waits[StepRef(block.id, number)]
            ]
            *before, last = awaited or [None]
            for place in before:
                yield Step(StepType.NOP, _NOWHERE, _NOWHERE, depends=place)
            yield replace(step, depends=last)

    return tuple(replace(block, steps=tuple(steps_of(block))) for block in blocks)
