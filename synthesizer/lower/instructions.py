"""The instruction DAG of a program: sends, receives and local instructions with their hazards.

Statement t of a program becomes instruction 2t (its send, or the local instruction) and, between
ranks, 2t+1 (its receive). `preds` are the instructions of the same rank that must come first:
read after write, write after read, write after write (MSCCLang section 4.2).

The global order that every threadblock follows comes from a run of the program on connections that
hold a given number of messages, one by default. Messages of a connection go in program order.
Because the run ends, the order is a witness: every wait of a step, for data, for a free slot or for
a dependence, is for something earlier in it, so threadblocks that follow it cannot deadlock with
that many slots or more.

A fused step waits for its data and for a free slot at once. Around a ring of full connections no
fused step can run; the run then splits one of them, which frees a slot.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from synthesizer.ir.algorithm import Buffer, StepType
from synthesizer.ir.program import Chunk, Location, Program, Statement
from tuccl.errors import ProgramError

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


_Place = TypeVar("_Place", Chunk, Location)


@dataclass
class _Hazards(Generic[_Place]):
    """Last writer, and readers since, of each location."""

    preds: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    readers: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    writer: dict[_Place, int] = field(default_factory=dict)
    reading: dict[_Place, list[int]] = field(default_factory=lambda: defaultdict(list))

    def access(self, index: int, reads: Iterable[_Place], writes: Iterable[_Place]) -> None:
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
    separate: _Hazards[Chunk] = _Hazards()
    aliased: _Hazards[Location] = _Hazards()
    for t, statement in enumerate(program.statements):
        for index, reads, writes in _accesses(t, statement):
            separate.access(index, reads, writes)
            if program.in_place and not program.is_self_copy(statement):
                locations = (
                    [program.location(chunk, in_place=True) for chunk in chunks]
                    for chunks in (reads, writes)
                )
                aliased.access(index, *locations)
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


@dataclass(frozen=True, slots=True)
class Slot:
    """A future step: an instruction, and the send fused to it if any."""

    instruction: int
    fused_send: int | None = None


def order_steps(dag: InstructionDag, fused: dict[int, int]) -> tuple[Slot, ...]:
    """Return the order of all steps, with the fusions that a run with one FIFO slot allows.

    Raises:
        ProgramError: The instructions wait for each other in a cycle.
    """
    run = _Run(dag, dict(fused))
    while len(run.done) < len(dag.instructions):
        if not run.advance():
            run.split()
    return tuple(run.order)


@dataclass
class _Run:
    dag: InstructionDag
    fused: dict[int, int]
    order: list[Slot] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    sends: dict[Connection, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    receives: dict[Connection, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    in_flight: set[Connection] = field(default_factory=set)
    """Connections whose slot holds a message."""
    successors: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    waiting: list[int] = field(default_factory=list)
    split_connections: set[Connection | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        for index, instruction in self.dag.instructions.items():
            for pred in instruction.preds:
                self.successors[pred].append(index)
            if instruction.connection:
                side = self.sends if instruction.type is StepType.SEND else self.receives
                side[instruction.connection].append(index)
        self.absorbed = {send: receive for receive, send in self.fused.items()}
        self.waiting = sorted(self.dag.instructions)

    def advance(self) -> bool:
        """Run every step that can run, earliest in the program first; return whether one ran."""
        moved = False
        while self.waiting:
            index = heapq.heappop(self.waiting)
            if index in self.done or index in self.absorbed:
                continue
            send = self.fused.get(index)
            if self._can_run(index) and (send is None or self._can_send(send)):
                self.order.append(Slot(index, send))
                self._complete(index)
                if send is not None:
                    self._complete(send)
                moved = True
        return moved

    def split(self) -> None:
        """Undo one fusion whose receive could run by itself.

        A connection that was split before goes first: one split per ring is enough.
        """
        open_fusions = (index for index in self.fused if index not in self.done)
        for index in sorted(open_fusions, key=lambda i: (not self._was_split(i), i)):
            if self._can_run(index):
                self.split_connections.add(self.dag.instructions[index].connection)
                del self.absorbed[self.fused.pop(index)]
                heapq.heappush(self.waiting, index)
                return
        raise ProgramError("the program's statements wait for each other in a cycle")

    def _was_split(self, index: int) -> bool:
        return self.dag.instructions[index].connection in self.split_connections

    def _can_run(self, index: int) -> bool:
        instruction = self.dag.instructions[index]
        if not instruction.preds <= self.done:
            return False
        if instruction.type is StepType.SEND:
            return self._can_send(index)
        if instruction.connection is None:
            return True
        return self.receives[instruction.connection][0] == index and index - 1 in self.done

    def _can_send(self, send: int) -> bool:
        connection = self.dag.instructions[send].connection
        if connection is None:
            return False
        return self.sends[connection][0] == send and connection not in self.in_flight

    def _complete(self, index: int) -> None:
        instruction = self.dag.instructions[index]
        self.done.add(index)
        woken = list(self.successors[index])
        connection = instruction.connection
        if connection:
            sending = instruction.type is StepType.SEND
            queue = self.sends[connection] if sending else self.receives[connection]
            queue.popleft()
            self.in_flight ^= {connection}
            woken += [
                side[connection][0] for side in (self.sends, self.receives) if side[connection]
            ]
        for instruction_index in woken:
            step_index = self.absorbed.get(instruction_index, instruction_index)
            heapq.heappush(self.waiting, step_index)
