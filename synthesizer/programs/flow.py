"""Symbolic run of a schedule: the contents of every message, and the proof of the result.

A value is a chunk and the set of ranks whose contributions are added up, so the final values show
whether the operation was computed. The run takes threadblocks in any order with bounded
connections; progress of one never blocks another, so if one order ends, all do. Schedules that
deadlock, add a contribution twice, leave a buffer or miss a part of the result are refused, so
every program of a bundle computes its operation.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from lookup_tables.collective import Collective
from lookup_tables.program_header import MOST_RANKS
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
from synthesizer.ir.contents import Sum, initial_contents, output_chunks, postcondition
from synthesizer.ir.wiring import READS_SRC, RECEIVING, SENDING, WRITES_DST
from synthesizer.programs.layout import (
    MOST_CHANNEL,
    MOST_CHUNKS,
    MOST_STEPS,
    MOST_THREADBLOCKS,
    NO_PEER,
    SLOTS,
)
from tuccl.errors import NoProgramError


class Message(NamedTuple):
    """A chunk sent from one rank to another."""

    sender: int
    receiver: int
    value: Sum


StepPlace = tuple[int, int, int]
"""Rank, threadblock, step."""


@dataclass(slots=True)
class Flow:
    """The result of a symbolic run."""

    messages: Counter[Message] = field(default_factory=Counter)
    completing: set[StepPlace] = field(default_factory=set)
    """Steps that complete sums of all ranks' contributions."""
    divisible: bool = True
    """Whether no such step also makes incomplete sums."""
    order: list[StepPlace] = field(default_factory=list)
    """Steps in the order of the run."""


@dataclass(slots=True)
class _Worker:
    rank: int
    block: Threadblock
    at: int = 0

    def name(self) -> str:
        return f"rank {self.rank} threadblock {self.block.id} step {self.at}"


def run_on_symbols(algorithm: Algorithm) -> Flow:
    """Run a schedule and check that it computes its operation.

    Raises:
        NoProgramError: It does not, it deadlocks, or it exceeds an executor's limits.
    """
    _check_operation(algorithm)
    for rank, gpu in enumerate(algorithm.programs):
        _check_rank(gpu, rank)
    _check_connections(algorithm)
    machine = _Machine(algorithm)
    machine.run()
    for rank in range(algorithm.ranks):
        machine.check_result(rank)
    return machine.flow


def part_chunks(algorithm: Algorithm) -> int:
    """Return the chunks of one rank's part, or of the whole buffer where it is not divided."""
    return algorithm.chunks_per_loop // algorithm.collective.parts(algorithm.ranks)


def _check_operation(algorithm: Algorithm) -> None:
    collective, ranks = algorithm.collective, algorithm.ranks
    if collective is Collective.CUSTOM:
        raise NoProgramError(f"{collective} is not an operation that the executor runs")
    if not algorithm.out_of_place:
        raise NoProgramError("it runs in place only, and a call may be either")
    if not 2 <= ranks <= MOST_RANKS:
        raise NoProgramError(f"{ranks} ranks, an executor serves 2 to {MOST_RANKS}")
    if collective.has_root and not 0 <= algorithm.root < ranks:
        raise NoProgramError(f"root {algorithm.root} of {collective} is none of {ranks} ranks")
    chunks = algorithm.chunks_per_loop
    if not 1 <= chunks <= MOST_CHUNKS or (collective.divides and chunks % ranks):
        raise NoProgramError(f"{chunks} chunks for {collective} on {ranks} ranks")


def _check_rank(gpu: GpuProgram, rank: int) -> None:
    blocks = gpu.threadblocks
    if gpu.rank != rank or [block.id for block in blocks] != list(range(len(blocks))):
        raise NoProgramError(f"rank {rank} or its threadblocks are not numbered from 0")
    longest = max((len(block.steps) for block in blocks), default=0)
    if len(blocks) > MOST_THREADBLOCKS or longest > MOST_STEPS:
        raise NoProgramError(
            f"rank {rank} has {len(blocks)} threadblocks of up to {longest} steps, an executor "
            f"takes {MOST_THREADBLOCKS} of {MOST_STEPS}"
        )
    if not 0 <= gpu.scratch_chunks <= MOST_CHUNKS:
        raise NoProgramError(f"rank {rank} has {gpu.scratch_chunks} scratch chunks")
    for step in (step for block in blocks for step in block.steps):
        if step.type is not StepType.NOP and not 1 <= step.count <= MOST_STEPS:
            raise NoProgramError(
                f"a step of rank {rank} moves {step.count} chunks, allowed are 1 to {MOST_STEPS}"
            )


def _check_connections(algorithm: Algorithm) -> None:
    sends: Counter[tuple[int, int, int]] = Counter()
    receives: Counter[tuple[int, int, int]] = Counter()
    for rank, gpu in enumerate(algorithm.programs):
        for block in gpu.threadblocks:
            for peer in (block.send_peer, block.recv_peer):
                if not NO_PEER <= peer < algorithm.ranks or peer == rank:
                    raise NoProgramError(f"rank {rank} has a peer {peer}")
            if not 0 <= block.channel <= MOST_CHANNEL:
                raise NoProgramError(f"rank {rank} has a channel {block.channel}")
            if block.send_peer != NO_PEER:
                sends[rank, block.send_peer, block.channel] += 1
            if block.recv_peer != NO_PEER:
                receives[block.recv_peer, rank, block.channel] += 1
    for connection in sends | receives:
        if sends[connection] != 1 or receives[connection] != 1:
            sender, receiver, channel = connection
            raise NoProgramError(
                f"connection {sender} to {receiver} on channel {channel} has "
                f"{sends[connection]} senders and {receives[connection]} receivers instead of 1"
                " of each"
            )


class _Machine:
    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.flow = Flow()
        self.all_ranks = (1 << algorithm.ranks) - 1
        self.part = part_chunks(algorithm)
        self.memory = [self._memory(gpu) for gpu in algorithm.programs]
        self.fifos: dict[tuple[int, int, int], deque[list[Sum]]] = {}
        self.workers = [
            [_Worker(gpu.rank, block) for block in gpu.threadblocks] for gpu in algorithm.programs
        ]

    def _memory(self, gpu: GpuProgram) -> dict[Buffer, list[Sum | None]]:
        algorithm = self.algorithm
        sizes = (algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop)
        return {
            Buffer.INPUT: list(initial_contents(*sizes, gpu.rank, algorithm.root)),
            Buffer.OUTPUT: [None] * output_chunks(*sizes, gpu.rank, algorithm.root),
            Buffer.SCRATCH: [None] * gpu.scratch_chunks,
        }

    def run(self) -> None:
        all_workers = [worker for workers in self.workers for worker in workers]
        advanced = True
        while advanced:
            advanced = False
            for worker in all_workers:
                while worker.at < len(worker.block.steps) and self._advance(worker):
                    advanced = True
        for worker in all_workers:
            if worker.at < len(worker.block.steps):
                raise NoProgramError(f"{worker.name()} waits forever")
        if any(self.fifos.values()):
            raise NoProgramError("a message is sent that no step receives")

    def _advance(self, worker: _Worker) -> bool:
        step, block, rank = worker.block.steps[worker.at], worker.block, worker.rank
        if step.depends is not None and not self._is_done(worker, step.depends):
            return False
        incoming = self._fifo(worker, block.recv_peer, rank, used=step.type in RECEIVING)
        outgoing = self._fifo(worker, rank, block.send_peer, used=step.type in SENDING)
        if step.type in RECEIVING and not incoming:
            return False
        if step.type in SENDING and len(outgoing) >= SLOTS:
            return False
        if step.type is not StepType.NOP:
            values = self._compute(worker, step, incoming)
            if step.type in WRITES_DST:
                self._write(worker, step.dst, values)
            if step.type in SENDING:
                outgoing.append(values)
                self.flow.messages.update(Message(rank, block.send_peer, value) for value in values)
        self.flow.order.append((rank, block.id, worker.at))
        worker.at += 1
        return True

    def _is_done(self, worker: _Worker, awaited: StepRef) -> bool:
        blocks, number = self.workers[worker.rank], awaited.threadblock
        exists = 0 <= number < len(blocks) and 0 <= awaited.step < len(blocks[number].block.steps)
        if not exists or number == worker.block.id:
            raise NoProgramError(
                f"{worker.name()} waits for step {awaited.step} of threadblock {number}"
            )
        return blocks[number].at > awaited.step

    def _fifo(self, worker: _Worker, sender: int, receiver: int, *, used: bool) -> deque[list[Sum]]:
        if used and NO_PEER in {sender, receiver}:
            raise NoProgramError(f"{worker.name()} has no peer for its message")
        return self.fifos.setdefault((sender, receiver, worker.block.channel), deque())

    def _compute(self, worker: _Worker, step: Step, incoming: deque[list[Sum]]) -> list[Sum]:
        values = self._read(worker, step.src, step.count) if step.type in READS_SRC else None
        if step.type is StepType.REDUCE:
            operand: list[Sum] | None = self._read(worker, step.dst, step.count)
        else:
            operand = incoming.popleft() if step.type in RECEIVING else None
        if operand is not None and len(operand) != step.count:
            raise NoProgramError(f"{worker.name()} receives {len(operand)} chunks")
        if values is None:
            return operand or []
        if operand is None:
            return values
        pairs = zip(values, operand, strict=True)
        sums = [self._sum(worker, left, right) for left, right in pairs]
        complete = {value.ranks == self.all_ranks for value in sums}
        if True in complete:
            self.flow.completing.add((worker.rank, worker.block.id, worker.at))
            self.flow.divisible &= False not in complete
        return sums

    def _sum(self, worker: _Worker, left: Sum, right: Sum) -> Sum:
        if not self.algorithm.collective.reduces:
            raise NoProgramError(f"{worker.name()} adds, but {self.algorithm.collective} does not")
        if left.chunk != right.chunk or left.ranks & right.ranks:
            raise NoProgramError(f"{worker.name()} adds chunks that do not belong together")
        return Sum(left.chunk, left.ranks | right.ranks)

    def _chunks(self, worker: _Worker, place: ChunkRef, count: int) -> range:
        size = len(self.memory[worker.rank][place.buffer])
        if place.offset < 0 or place.offset + count > size:
            raise NoProgramError(
                f"{worker.name()} uses chunks {place.offset} to {place.offset + count - 1} of "
                f"the {place.buffer.name.lower()} buffer, which has {size}"
            )
        return range(place.offset, place.offset + count)

    def _read(self, worker: _Worker, place: ChunkRef, count: int) -> list[Sum]:
        buffer = self.memory[worker.rank][place.buffer]
        found = [buffer[chunk] for chunk in self._chunks(worker, place, count)]
        values = [value for value in found if value is not None]
        if len(values) != count:
            raise NoProgramError(f"{worker.name()} reads a chunk that no step has written")
        return values

    def _write(self, worker: _Worker, place: ChunkRef, values: list[Sum]) -> None:
        if place.buffer is Buffer.INPUT:
            raise NoProgramError(f"{worker.name()} writes into the caller's input")
        chunks = self._chunks(worker, place, len(values))
        for chunk, value in zip(chunks, values, strict=True):
            # The last chunk of a part may be shorter than the others.
            if place.buffer is Buffer.OUTPUT and chunk % self.part != value.chunk % self.part:
                raise NoProgramError(
                    f"{worker.name()} keeps chunk {value.chunk} in the place of chunk {chunk}"
                )
            self.memory[worker.rank][place.buffer][chunk] = value

    def check_result(self, rank: int) -> None:
        """Check that a rank's output is the operation's result."""
        algorithm = self.algorithm
        sizes = (algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop)
        wanted = postcondition(*sizes, rank, algorithm.root)
        pairs = zip(self.memory[rank][Buffer.OUTPUT], wanted, strict=True)
        for chunk, (found, required) in enumerate(pairs):
            if found != required:
                raise NoProgramError(
                    f"rank {rank} does not get chunk {chunk} of {algorithm.collective}"
                )
