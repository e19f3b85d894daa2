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

from collections.abc import Sequence
from dataclasses import replace

from lookup_tables.programs.program_layout import BufferCode, StepCode
from lookup_tables.programs.program_model import Place, Program, ProgramBlock, ProgramStep
from lookup_tables.table import Operation

StepPlace = tuple[int, int, int]
"""Rank, threadblock, step."""
_Location = tuple[BufferCode, int]
_Access = tuple[int, int]
"""Threadblock and step."""


def with_explicit_order(program: Program, order: Sequence[StepPlace]) -> Program:
    """The program with the dependences that it needs where messages carry no order.

    Args:
        program: One that `program_flow` found right.
        order: All its steps, in an order in which they may run.
    """
    ranks = []
    for rank, of_rank in enumerate(program.ranks):
        clocks = _Clocks(program, rank)
        for step_rank, block, step in order:
            if step_rank == rank:
                clocks.run(block, step)
        blocks = _emit(of_rank.blocks, clocks.waits) if clocks.found else of_rank.blocks
        ranks.append(replace(of_rank, blocks=blocks))
    return replace(program, ranks=tuple(ranks))


class _Clocks:
    """What is done before each step, by the rank's own order alone."""

    def __init__(self, program: Program, rank: int) -> None:
        self.program = program
        self.rank = rank
        self.blocks = program.ranks[rank].blocks
        self.clock: dict[_Access, tuple[int, ...]] = {}
        self.now = [[0] * len(self.blocks) for _ in self.blocks]
        self.waits: dict[_Access, list[_Access]] = {}
        self.found = False
        """Whether anything was missing."""
        layouts = [False, True] if program.in_place else [False]
        self.writers: list[tuple[bool, dict[_Location, _Access]]] = [
            (in_place, {}) for in_place in layouts
        ]

    def run(self, block: int, number: int) -> None:
        """Take a step: what it must wait for and does not is added."""
        step, here = self.blocks[block].steps[number], (block, number)
        waits = self.waits[here] = [] if step.depends is None else [step.depends]
        clock = self.now[block]
        for awaited in waits:
            self._learn(clock, awaited)
        missing = {
            writers[location]
            for in_place, writers in self.writers
            for location in self._touched(step, in_place=in_place)
            if location in writers and writers[location][0] != block
        }
        # The latest first: what it waits for need not be waited for again.
        for other in sorted(missing, key=lambda place: (-place[1], place[0])):
            if clock[other[0]] <= other[1]:
                waits.append(other)
                self.found = True
                self._learn(clock, other)
        clock[block] = number + 1
        self.clock[here] = tuple(clock)
        for in_place, writers in self.writers:
            writers.update(dict.fromkeys(self._written(step, in_place=in_place), here))

    def _learn(self, clock: list[int], awaited: _Access) -> None:
        clock[:] = map(max, clock, self.clock[awaited])

    def _touched(self, step: ProgramStep, *, in_place: bool) -> list[_Location]:
        read = self._locations(step.src, step.count, in_place=in_place) if step.code.reads else []
        # A sum into its destination reads that too.
        return read + self._written(step, in_place=in_place)

    def _written(self, step: ProgramStep, *, in_place: bool) -> list[_Location]:
        if not step.code.writes:
            return []
        written = self._locations(step.dst, step.count, in_place=in_place)
        moves_nothing = step.code is StepCode.CPY and written == self._locations(
            step.src, step.count, in_place=in_place
        )
        return [] if moves_nothing else written

    def _locations(self, place: Place, count: int, *, in_place: bool) -> list[_Location]:
        buffer, first = place.buffer, place.offset
        if in_place and buffer is BufferCode.INPUT:
            buffer = BufferCode.OUTPUT
            if self.program.operation is Operation.ALL_GATHER:
                first += self.rank * self.program.part_chunks
        elif in_place and self.program.operation is Operation.REDUCE_SCATTER:
            first += self.rank * self.program.part_chunks * (buffer is BufferCode.OUTPUT)
        return [(buffer, chunk) for chunk in range(first, first + count)]


def _emit(
    blocks: Sequence[ProgramBlock], waits: dict[_Access, list[_Access]]
) -> tuple[ProgramBlock, ...]:
    """Steps wait for one other step each, so `nop`s before them wait for the rest."""
    moved: dict[_Access, _Access] = {}
    for number, block in enumerate(blocks):
        at = -1
        for index in range(len(block.steps)):
            at += max(1, len(waits[number, index]))
            moved[number, index] = number, at
    nowhere = Place(BufferCode.INPUT, 0)
    emitted = []
    for number, block in enumerate(blocks):
        steps: list[ProgramStep] = []
        for index, step in enumerate(block.steps):
            awaited: list[_Access | None] = [moved[place] for place in waits[number, index]]
            *before, last = awaited or [None]
            steps += [ProgramStep(StepCode.NOP, nowhere, nowhere, 1, place) for place in before]
            steps.append(replace(step, depends=last))
        emitted.append(replace(block, steps=tuple(steps)))
    return tuple(emitted)
