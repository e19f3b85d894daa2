"""Compiler from schedules to the bytes that an executor runs, and their reader.

There is no intermediate format between the synthesizer and the kernel's loader: tables and bundles
carry these bytes, and `tuccl/runtime/program.c` checks them. A schedule is compiled only after a
symbolic run has shown that it computes its operation. The reader makes a schedule of the bytes
again and compiles it once more: bytes that differ from the result are refused.

A step that reads or overwrites a chunk written by another threadblock of its rank may be ordered
after it only by messages: one that left after the first step and one that arrived before the
second. That is enough if a message makes all earlier writes of its sender visible; the lines of LL
and LL128 make only themselves visible. So if the rank's threadblocks and dependences do not order
the two steps, the later step gets a dependence on the earlier, through a `nop` before it if it has
one already. A step that overwrites a chunk that another has only read needs none: the message that
arrived depends on the data that was read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lookup_tables import program_header
from lookup_tables.table import StoredSchedule
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
from synthesizer.ir.buffer_layout import Layout, layout
from synthesizer.programs.flow import StepPlace, run_on_symbols
from synthesizer.programs.layout import PhaseKind, unpacked
from synthesizer.programs.phases import PhasedSchedule
from synthesizer.programs.proof import prove
from synthesizer.programs.records import algorithm_of, records_of, records_of_steps, schedule_of
from tuccl.errors import NoProgramError, TableError

_NOWHERE = ChunkRef(Buffer.INPUT, 0)


def with_explicit_order(algorithm: Algorithm, order: Sequence[StepPlace]) -> Algorithm:
    """Return the schedule with the dependences that it needs if messages carry no order.

    `order` has all its steps, in a possible order of execution.

    Returns:
        The schedule itself if it needs none.
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
    """Clocks of the steps before each step, by the rank's own order alone."""

    def __init__(self, algorithm: Algorithm, gpu: GpuProgram) -> None:
        self.blocks = gpu.threadblocks
        self.clock: dict[StepRef, tuple[int, ...]] = {}
        self.now = [[0] * len(self.blocks) for _ in self.blocks]
        self.waits: dict[StepRef, list[StepRef]] = {}
        self.found = False
        """Whether a dependence was missing."""
        modes = [False, True] if algorithm.in_place else [False]
        self.writers: list[tuple[Layout, dict[int, StepRef]]] = [
            (layout(algorithm, gpu.rank, in_place=in_place), {}) for in_place in modes
        ]
        """Last writer of each address, out of place and in place."""

    def run(self, current: StepRef) -> None:
        """Add the missing dependences of a step, and its clock."""
        step = self.blocks[current.threadblock].steps[current.step]
        waits = self.waits[current] = [] if step.depends is None else [step.depends]
        clock = self.now[current.threadblock]
        for awaited in waits:
            self._merge(clock, awaited)
        missing = {
            writers[address]
            for lay, writers in self.writers
            for address in _touched(step, lay)
            if address in writers and writers[address].threadblock != current.threadblock
        }
        # The latest first: a step that it waits for needs no wait of its own.
        for writer in sorted(missing, key=lambda place: (-place.step, place.threadblock)):
            if clock[writer.threadblock] <= writer.step:
                waits.append(writer)
                self.found = True
                self._merge(clock, writer)
        clock[current.threadblock] = current.step + 1
        self.clock[current] = tuple(clock)
        for lay, writers in self.writers:
            writers.update(dict.fromkeys(_written(step, lay), current))

    def _merge(self, clock: list[int], awaited: StepRef) -> None:
        clock[:] = map(max, clock, self.clock[awaited])


def _touched(step: Step, lay: Layout) -> list[int]:
    read = _addresses(lay, step.src, step.count) if step.type.reads_source else []
    # A sum into its destination also reads it.
    return [*read, *_written(step, lay)]


def _written(step: Step, lay: Layout) -> Sequence[int]:
    if not step.type.writes:
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
    """Return the threadblocks with a dependence per step; `nop`s before a step take the rest."""
    renumbered: dict[StepRef, StepRef] = {}
    for block in blocks:
        at = -1
        for number in range(len(block.steps)):
            original = StepRef(block.id, number)
            at += max(1, len(waits[original]))
            renumbered[original] = StepRef(block.id, at)

    def steps_of(block: Threadblock) -> Iterator[Step]:
        for number, step in enumerate(block.steps):
            awaited: list[StepRef | None] = [
                renumbered[place] for place in waits[StepRef(block.id, number)]
            ]
            *before, last = awaited or [None]
            for place in before:
                yield Step(StepType.NOP, _NOWHERE, _NOWHERE, depends=place)
            yield replace(step, depends=last)

    return tuple(replace(block, steps=tuple(steps_of(block))) for block in blocks)


def compile_program(schedule: Algorithm | PhasedSchedule) -> bytes:
    """Return the program of a schedule: steps of the ranks of one node, or phases across hosts.

    Raises:
        NoProgramError: No executor can run the schedule; the message says why.
    """
    if isinstance(schedule, PhasedSchedule):
        return records_of(schedule, prove(schedule)).packed()
    flow = run_on_symbols(schedule)
    ordered = with_explicit_order(schedule, flow.order)
    if ordered is not schedule:
        return packed(ordered)
    return records_of_steps(schedule, flow).packed()


def program_of(algorithm: Algorithm) -> bytes:
    """Return the program of a schedule; empty if no executor can run it."""
    try:
        return compile_program(algorithm)
    except NoProgramError:
        return b""


def packed(algorithm: Algorithm) -> bytes:
    """Return the program of exactly these steps, without added dependences.

    Raises:
        NoProgramError: As in `compile_program`.
    """
    return records_of_steps(algorithm, run_on_symbols(algorithm)).packed()


def program_hash(phased: PhasedSchedule) -> str:
    """Return 16 hex digits that identify what a phased schedule does, whatever its name.

    Schedules that differ in the configuration of their rails alone have one data flow, and so the
    same content hash as MSCCL-IR.

    Raises:
        NoProgramError: As in `compile_program`.
    """
    return program_header.content_address(compile_program(phased)).hex()


def read_program(data: bytes, source: str) -> Algorithm | PhasedSchedule:
    """Return the schedule of a program, which has no name, protocol or sizes.

    Raises:
        TableError: The program is damaged, of another version, or inconsistent.
    """
    try:
        program_header.check_seal(data)
        records = unpacked(data)
        schedule: Algorithm | PhasedSchedule
        if records.phases[0].kind == PhaseKind.STEPS:
            schedule = algorithm_of(records)
            again = packed(schedule)
        else:
            schedule = schedule_of(records)
            again = compile_program(schedule)
        if again != data:
            raise ValueError("its bytes differ from those of its schedule")
    except (struct.error, ValueError, IndexError, NoProgramError) as error:
        raise TableError(
            f"{source}: the program is damaged ({error}); write the bundle again with `tuccl ship`"
        ) from error
    return schedule


def check_programs(schedules: Iterable[StoredSchedule], source: str) -> None:
    """Check that every program of a table or bundle computes its operation.

    Raises:
        TableError: A program is damaged, or does not compute its operation.
    """
    for schedule in schedules:
        if schedule.program:
            read_program(schedule.program, f"{source}: schedule {schedule.content_hash}")
