"""The instruction DAG of a program: sends, receives and local instructions with their hazards.

Statement t of a program becomes instruction 2t (its send, or the local instruction) and, between
ranks, 2t+1 (its receive). `preds` are the instructions of the same rank that must come first:
read after write, write after read, write after write (MSCCLang section 4.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from synthesizer.ir.algorithm import Buffer, StepType
from synthesizer.ir.program import Chunk, Program, Statement

Connection = tuple[int, int, int]
"""Sender, receiver, channel."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An unfused instruction."""

    index: int
    rank: int
    type: StepType
    src: Chunk
    dst: Chunk
    channel: int
    connection: Connection | None
    preds: frozenset[int]


@dataclass(frozen=True)
class InstructionDag:
    """Instructions by index, in program order, and the uses of the values that they write."""

    instructions: dict[int, Instruction]
    readers: dict[int, frozenset[int]]
    """Readers of a value, by the instruction that wrote it."""
    surviving: frozenset[int]
    """Instructions with a value that is in an output buffer, or in scratch memory that the program
    keeps, at the end."""


@dataclass
class _Hazards:
    """Last writer, and readers since, of each location."""

    preds: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    readers: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    writer: dict[Chunk, int] = field(default_factory=dict)
    reading: dict[Chunk, list[int]] = field(default_factory=lambda: defaultdict(list))

    def access(self, index: int, reads: Iterable[Chunk], writes: Iterable[Chunk]) -> None:
        for location in reads:
            if location in self.writer:
                self.preds[index].add(self.writer[location])
                self.readers[self.writer[location]].add(index)
            self.reading[location].append(index)
        for location in writes:
            self.preds[index].update(self.reading.pop(location, ()))
            if location in self.writer:
                self.preds[index].add(self.writer[location])
            self.writer[location] = index
        self.preds[index].discard(index)


def instruction_dag(program: Program) -> InstructionDag:
    """Return the instructions of a program with the hazards of every buffer layout that it allows.

    A copy of a chunk onto itself (in place only) moves nothing and adds no in-place hazard.
    """
    separate, aliased = _Hazards(), _Hazards()
    for t, statement in enumerate(program.statements):
        for index, reads, writes in _accesses(t, statement):
            separate.access(index, reads, writes)
            if program.in_place and not program.is_self_copy(statement):
                aliased.access(
                    index, map(program.location, reads), list(map(program.location, writes))
                )
    instructions = {
        instruction.index: instruction
        for t, statement in enumerate(program.statements)
        for instruction in _instructions(t, statement, separate.preds, aliased.preds)
    }
    surviving = {index for chunk, index in separate.writer.items() if chunk.buffer is Buffer.OUTPUT}
    readers = {index: frozenset(found) for index, found in separate.readers.items()}
    return InstructionDag(instructions, readers, frozenset(surviving))


def _accesses(
    t: int, statement: Statement
) -> list[tuple[int, tuple[Chunk, ...], tuple[Chunk, ...]]]:
    """Return (instruction, chunks read, chunks written) of each instruction of a statement."""
    src, dst = statement.src.units(), statement.dst.units()
    operand = statement.operand.units() if statement.operand else ()
    if statement.remote:
        return [(2 * t, src, ()), (2 * t + 1, operand, dst)]
    return [(2 * t, src + operand, dst)]


def _instructions(
    t: int,
    statement: Statement,
    separate: dict[int, set[int]],
    aliased: dict[int, set[int]],
) -> list[Instruction]:
    def preds(index: int) -> frozenset[int]:
        return frozenset(separate.get(index, set()) | aliased.get(index, set()))

    src, dst, channel = statement.src, statement.dst, statement.channel
    if not statement.remote:
        kind = StepType.REDUCE if statement.operand else StepType.COPY
        return [Instruction(2 * t, dst.rank, kind, src, dst, channel, None, preds(2 * t))]
    connection = (src.rank, dst.rank, channel)
    kind = StepType.RECV_REDUCE_COPY if statement.operand else StepType.RECV
    local = statement.operand or dst
    return [
        Instruction(2 * t, src.rank, StepType.SEND, src, dst, channel, connection, preds(2 * t)),
        Instruction(2 * t + 1, dst.rank, kind, local, dst, channel, connection, preds(2 * t + 1)),
    ]
