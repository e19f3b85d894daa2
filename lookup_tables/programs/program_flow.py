"""Runs a program on symbols: what every message carries, and that the operation is computed.

A value says which chunk it is and whose parts of it are added up, so the end shows whether the
operation was computed. The run takes threadblocks in any order with bounded connections; none of
them ever loses a chance to act by another's progress, so if one order ends, all do. Schedules that
block, add a part twice, leave a buffer or never write what is asked for are refused here: what a
bundle carries computes its operation.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from lookup_tables.errors import ScheduleTextError
from lookup_tables.programs.program_layout import (
    MOST_CHUNKS,
    MOST_RANKS,
    MOST_STEPS,
    MOST_THREADBLOCKS,
    NO_PEER,
    SLOTS,
    BufferCode,
    StepCode,
)
from lookup_tables.programs.program_model import (
    DIVIDED,
    REDUCING,
    ROOTED,
    Place,
    Program,
    ProgramBlock,
    ProgramStep,
)
from lookup_tables.table import Operation


class Value(NamedTuple):
    """Chunk `chunk` of the input of every rank whose bit is set, added up."""

    chunk: int
    parts: int


class Message(NamedTuple):
    """A chunk that crosses from one rank to another."""

    sender: int
    receiver: int
    value: Value


StepPlace = tuple[int, int, int]
"""Rank, threadblock, step."""


@dataclass(slots=True)
class Flow:
    """What a run showed."""

    messages: Counter[Message] = field(default_factory=Counter)
    completing: set[StepPlace] = field(default_factory=set)
    """Steps whose sums then hold every rank's part."""
    divisible: bool = True
    """Whether no such step also makes sums that lack parts."""
    order: list[StepPlace] = field(default_factory=list)
    """The order in which the steps were taken."""


@dataclass(slots=True)
class _Worker:
    rank: int
    number: int
    block: ProgramBlock
    at: int = 0

    def name(self) -> str:
        return f"rank {self.rank} threadblock {self.number} step {self.at}"


def run_program(program: Program) -> Flow:
    """Run a program and see that it computes its operation.

    Raises:
        ScheduleTextError: It does not, it can block, or it is beyond an executor's limits.
    """
    _check_limits(program)
    _check_connections(program)
    machine = _Machine(program)
    machine.run()
    for rank in range(len(program.ranks)):
        machine.check_result(rank)
    return machine.flow


def _check_limits(program: Program) -> None:
    ranks = len(program.ranks)
    if not 2 <= ranks <= MOST_RANKS:
        raise ScheduleTextError(f"{ranks} ranks, an executor serves 2 to {MOST_RANKS}")
    if not 0 <= program.root < (ranks if program.operation in ROOTED else 1):
        raise ScheduleTextError(f"root {program.root} of {program.operation} on {ranks} ranks")
    chunks = program.chunks_per_loop
    if not 1 <= chunks <= MOST_CHUNKS or (program.operation in DIVIDED and chunks % ranks):
        raise ScheduleTextError(f"{chunks} chunks for {program.operation} on {ranks} ranks")
    for number, rank in enumerate(program.ranks):
        blocks = len(rank.blocks)
        longest = max((len(block.steps) for block in rank.blocks), default=0)
        if blocks > MOST_THREADBLOCKS or longest > MOST_STEPS:
            raise ScheduleTextError(
                f"rank {number} has {blocks} threadblocks of up to {longest} steps, an executor "
                f"takes {MOST_THREADBLOCKS} of {MOST_STEPS}"
            )
        if not 0 <= rank.scratch_chunks <= MOST_CHUNKS:
            raise ScheduleTextError(f"rank {number} has {rank.scratch_chunks} scratch chunks")


def _check_connections(program: Program) -> None:
    """Each connection has one threadblock at either end."""
    sends: Counter[tuple[int, int, int]] = Counter()
    receives: Counter[tuple[int, int, int]] = Counter()
    for rank, of_rank in enumerate(program.ranks):
        for block in of_rank.blocks:
            for peer in (block.send_peer, block.receive_peer):
                if not NO_PEER <= peer < len(program.ranks) or peer == rank:
                    raise ScheduleTextError(f"rank {rank} has a peer {peer}")
            if not 0 <= block.channel <= 0xFFFF:
                raise ScheduleTextError(f"rank {rank} has a channel {block.channel}")
            if block.send_peer != NO_PEER:
                sends[rank, block.send_peer, block.channel] += 1
            if block.receive_peer != NO_PEER:
                receives[block.receive_peer, rank, block.channel] += 1
    for connection in sends | receives:
        if sends[connection] != 1 or receives[connection] != 1:
            sender, receiver, channel = connection
            raise ScheduleTextError(
                f"connection {sender} to {receiver} on channel {channel} has "
                f"{sends[connection]} senders and {receives[connection]} receivers, 1 of each must"
                " be"
            )


class _Machine:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.flow = Flow()
        self.everyone = (1 << len(program.ranks)) - 1
        self.memory: list[dict[BufferCode, list[Value | None]]] = [
            {buffer: [None] * program.buffer_chunks(rank, buffer) for buffer in BufferCode}
            for rank in range(len(program.ranks))
        ]
        for rank, buffers in enumerate(self.memory):
            count = len(buffers[BufferCode.INPUT])
            buffers[BufferCode.INPUT] = [Value(chunk, 1 << rank) for chunk in range(count)]
        self.fifos: dict[tuple[int, int, int], deque[list[Value]]] = {}
        self.workers = [
            [_Worker(rank, number, block) for number, block in enumerate(of_rank.blocks)]
            for rank, of_rank in enumerate(program.ranks)
        ]

    def run(self) -> None:
        everyone = [worker for workers in self.workers for worker in workers]
        advanced = True
        while advanced:
            advanced = False
            for worker in everyone:
                while worker.at < len(worker.block.steps) and self._advance(worker):
                    advanced = True
        for worker in everyone:
            if worker.at < len(worker.block.steps):
                raise ScheduleTextError(f"{worker.name()} waits for ever")
        if any(self.fifos.values()):
            raise ScheduleTextError("a message is sent that nobody receives")

    def _advance(self, worker: _Worker) -> bool:
        step, block, rank = worker.block.steps[worker.at], worker.block, worker.rank
        if step.depends is not None and not self._is_done(worker, *step.depends):
            return False
        incoming = self._fifo(worker, block.receive_peer, rank, used=step.code.receives)
        outgoing = self._fifo(worker, rank, block.send_peer, used=step.code.sends)
        if (step.code.receives and not incoming) or (step.code.sends and len(outgoing) >= SLOTS):
            return False
        if step.code is not StepCode.NOP:
            values = self._compute(worker, step, incoming)
            if step.code.writes:
                self._write(worker, step.dst, values)
            if step.code.sends:
                outgoing.append(values)
                self.flow.messages.update(Message(rank, block.send_peer, value) for value in values)
        self.flow.order.append((rank, worker.number, worker.at))
        worker.at += 1
        return True

    def _is_done(self, worker: _Worker, number: int, step: int) -> bool:
        others = self.workers[worker.rank]
        exists = number < len(others) and 0 <= step < len(others[number].block.steps)
        if not exists or number == worker.number:
            raise ScheduleTextError(
                f"{worker.name()} waits for step {step} of threadblock {number}"
            )
        return others[number].at > step

    def _fifo(
        self, worker: _Worker, sender: int, receiver: int, *, used: bool
    ) -> deque[list[Value]]:
        if used and NO_PEER in {sender, receiver}:
            raise ScheduleTextError(f"{worker.name()} has no peer for its message")
        return self.fifos.setdefault((sender, receiver, worker.block.channel), deque())

    def _compute(
        self, worker: _Worker, step: ProgramStep, incoming: deque[list[Value]]
    ) -> list[Value]:
        values = self._read(worker, step.src, step.count) if step.code.reads else None
        if step.code is StepCode.RE:
            other: list[Value] | None = self._read(worker, step.dst, step.count)
        else:
            other = incoming.popleft() if step.code.receives else None
        if other is not None and len(other) != step.count:
            raise ScheduleTextError(f"{worker.name()} receives {len(other)} chunks")
        if values is None:
            return other or []
        if other is None:
            return values
        pairs = zip(values, other, strict=True)
        sums = [self._sum(worker, one, another) for one, another in pairs]
        complete = {value.parts == self.everyone for value in sums}
        if True in complete:
            self.flow.completing.add((worker.rank, worker.number, worker.at))
            self.flow.divisible &= False not in complete
        return sums

    def _sum(self, worker: _Worker, one: Value, other: Value) -> Value:
        if self.program.operation not in REDUCING:
            raise ScheduleTextError(f"{worker.name()} adds, but {self.program.operation} does not")
        if one.chunk != other.chunk or one.parts & other.parts:
            raise ScheduleTextError(f"{worker.name()} adds what does not belong together")
        return Value(one.chunk, one.parts | other.parts)

    def _chunks(self, worker: _Worker, place: Place, count: int) -> range:
        size = len(self.memory[worker.rank][place.buffer])
        if place.offset < 0 or place.offset + count > size:
            raise ScheduleTextError(
                f"{worker.name()} uses chunks {place.offset} to {place.offset + count - 1} of "
                f"the {place.buffer.name.lower()} buffer, which has {size}"
            )
        return range(place.offset, place.offset + count)

    def _read(self, worker: _Worker, place: Place, count: int) -> list[Value]:
        buffer = self.memory[worker.rank][place.buffer]
        found = [buffer[chunk] for chunk in self._chunks(worker, place, count)]
        values = [value for value in found if value is not None]
        if len(values) != count:
            raise ScheduleTextError(f"{worker.name()} reads what nobody has written")
        return values

    def _write(self, worker: _Worker, place: Place, values: list[Value]) -> None:
        if place.buffer is BufferCode.INPUT:
            raise ScheduleTextError(f"{worker.name()} writes into the caller's input")
        part = self.program.part_chunks
        chunks = self._chunks(worker, place, len(values))
        for chunk, value in zip(chunks, values, strict=True):
            # The last chunk of a part may be shorter than the others.
            if place.buffer is BufferCode.OUTPUT and chunk % part != value.chunk % part:
                raise ScheduleTextError(
                    f"{worker.name()} keeps chunk {value.chunk} in the place of chunk {chunk}"
                )
            self.memory[worker.rank][place.buffer][chunk] = value

    def check_result(self, rank: int) -> None:
        """See that a rank's output is what the operation asks for."""
        for chunk, found in enumerate(self.memory[rank][BufferCode.OUTPUT]):
            if found != _asked_for(self.program, rank, chunk):
                raise ScheduleTextError(
                    f"rank {rank} does not get chunk {chunk} of {self.program.operation}"
                )


def _asked_for(program: Program, rank: int, chunk: int) -> Value:
    part = program.part_chunks
    match program.operation:
        case Operation.ALL_GATHER:
            return Value(chunk % part, 1 << chunk // part)
        case Operation.ALLTOALL:
            return Value(rank * part + chunk % part, 1 << chunk // part)
        case Operation.BROADCAST:
            return Value(chunk, 1 << program.root)
        case Operation.REDUCE_SCATTER:
            return Value(rank * part + chunk, (1 << len(program.ranks)) - 1)
        case Operation.ALL_REDUCE | Operation.REDUCE:
            return Value(chunk, (1 << len(program.ranks)) - 1)
