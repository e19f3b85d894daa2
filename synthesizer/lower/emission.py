"""Emission: ordered instructions become MSCCL-IR threadblocks with reduced dependences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.algorithm import (
    Buffer,
    ChunkRef,
    GpuProgram,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.ir.program import Chunk, Program
from synthesizer.lower.instructions import Connection, InstructionDag, Slot


@dataclass(frozen=True, slots=True, order=True)
class ThreadblockKey:
    """A threadblock's identity: the connections that it owns."""

    rank: int
    channel: int
    send_peer: int
    recv_peer: int


def threadblocks(dag: InstructionDag, order: tuple[Slot, ...]) -> dict[int, ThreadblockKey]:
    """Return the threadblock of every step, by the step's first instruction.

    The two connections of a fused step share a threadblock; every other connection has its own, so
    that sends and receives overlap; local copies and reductions have one per channel.
    """
    onward: dict[Connection, Connection] = {}
    for slot in order:
        source = dag.instructions[slot.instruction].connection
        if slot.fused_send is not None and source:
            target = dag.instructions[slot.fused_send].connection
            if target:
                onward[source] = target
    source_of = {target: source for source, target in onward.items()}
    keys: dict[int, ThreadblockKey] = {}
    for slot in order:
        instruction = dag.instructions[slot.instruction]
        connection, rank = instruction.connection, instruction.rank
        sends = recvs = None
        if connection and connection[0] == rank:
            sends, recvs = connection, source_of.get(connection)
        elif connection:
            sends, recvs = onward.get(connection), connection
        keys[slot.instruction] = ThreadblockKey(
            rank,
            instruction.channel,
            sends[1] if sends else -1,
            recvs[0] if recvs else -1,
        )
    return keys


Clock = NDArray[np.int32]

MOST_ACROSS_RANKS = 2048
"""Most threadblocks of all ranks whose clocks count other ranks' steps. The memory of such clocks
grows with the cube of the ranks; above this, clocks stay within the rank, and waits that a message
makes redundant are kept."""

_FUSED = {
    StepType.RECV: StepType.RECV_COPY_SEND,
    StepType.RECV_REDUCE_COPY: StepType.RECV_REDUCE_COPY_SEND,
}


@dataclass
class _Emitter:
    """Steps per threadblock, and the step of each instruction.

    Happens-before is kept as vector clocks: the steps of each threadblock that precede an
    instruction's start, and its end. Messages stream, so a receive may write as soon as its send
    has begun, but it ends only after the send; and a receiving reduction may read its operand
    before the message arrives. A fused step may send before it stores, so its message implies the
    steps before it, not its own result.
    """

    number: Mapping[ThreadblockKey, int]
    column: Mapping[ThreadblockKey, int]
    width: Mapping[int, int]
    """Number of columns of a rank's clocks."""
    across_ranks: bool
    """Whether clocks count the threadblocks of all ranks and are passed on with messages."""
    steps: dict[ThreadblockKey, list[Step]] = field(default_factory=lambda: defaultdict(list))
    place: dict[int, tuple[ThreadblockKey, int]] = field(default_factory=dict)
    began: dict[int, Clock] = field(default_factory=dict)
    done: dict[int, Clock] = field(default_factory=dict)
    implied: dict[int, Clock] = field(default_factory=dict)
    """Clock that the message of a send implies at its receiver."""
    latest: dict[ThreadblockKey, Clock] = field(default_factory=dict)

    def emit(
        self,
        key: ThreadblockKey,
        step: Step,
        waits: Iterable[int],
        source_send: int | None,
        instructions: tuple[int, ...],
    ) -> None:
        """Append a step, preceded by nops if it waits for several steps."""
        begin = self.latest.get(key)
        begin = np.zeros(self.width[key.rank], np.int32) if begin is None else begin.copy()
        source_send = source_send if self.across_ranks else None
        copies = step.type in {StepType.RECV, StepType.RECV_COPY_SEND}
        if source_send is not None and copies:
            np.maximum(begin, self.began[source_send], out=begin)
        needed = self._needed(waits, begin)
        if source_send is not None and not copies:
            np.maximum(begin, self.began[source_send], out=begin)
        steps = self.steps[key]
        nowhere = ChunkRef(Buffer.INPUT, 0)
        steps += [Step(StepType.NOP, nowhere, nowhere, 0, wait) for wait in needed[:-1]]
        steps.append(replace(step, depends=needed[-1] if needed else None))
        done = begin.copy()
        if source_send is not None:
            np.maximum(done, self.implied[source_send], out=done)
        stores_late = step.type in {StepType.RECV_COPY_SEND, StepType.RECV_REDUCE_COPY_SEND}
        implied = done.copy() if self.across_ranks and stores_late else done
        done[self.column[key]] = len(steps)
        self.latest[key] = done
        for instruction in instructions:
            self.place[instruction] = (key, len(steps) - 1)
            self.began[instruction] = begin
            self.done[instruction] = done
            self.implied[instruction] = implied

    def _needed(self, waits: Iterable[int], begin: Clock) -> list[StepRef]:
        """Return the dependences that `begin` does not imply, and merge their clocks into it."""
        needed: list[StepRef] = []
        # Latest first: a step that a later one waits for needs no wait of its own.
        for wait in sorted(waits, key=lambda wait: (-int(self.done[wait].sum()), wait)):
            key, position = self.place[wait]
            if begin[self.column[key]] <= position:
                np.maximum(begin, self.done[wait], out=begin)
                needed.append(StepRef(self.number[key], position))
        return needed


def emit_programs(
    program: Program,
    dag: InstructionDag,
    order: tuple[Slot, ...],
    keys: Mapping[int, ThreadblockKey],
) -> tuple[GpuProgram, ...]:
    """Return the programs of all ranks for steps in a given global order and threadblocks."""
    per_rank, number = _numbered(program.ranks, order, keys)
    scratch = _ScratchMap(program, dag, order)
    emitter = _emitter(per_rank, number)
    for slot in order:
        instruction = dag.instructions[slot.instruction]
        instructions = (slot.instruction,) + (() if slot.fused_send is None else (slot.fused_send,))
        message = slot.instruction - 1 if instruction.type.receives else None
        emitter.emit(
            keys[slot.instruction],
            _step(dag, slot, scratch),
            instruction.preds,
            message,
            instructions,
        )
    return tuple(
        GpuProgram(
            rank,
            program.input_chunks,
            program.output_chunks,
            scratch.size(rank),
            tuple(
                Threadblock(
                    number[key],
                    key.send_peer,
                    key.recv_peer,
                    key.channel,
                    tuple(emitter.steps[key]),
                )
                for key in per_rank[rank]
            ),
        )
        for rank in range(program.ranks)
    )


def _emitter(
    per_rank: list[list[ThreadblockKey]], number: Mapping[ThreadblockKey, int]
) -> _Emitter:
    if len(number) > MOST_ACROSS_RANKS:
        width = {rank: len(keys) for rank, keys in enumerate(per_rank)}
        return _Emitter(number, number, width, across_ranks=False)
    column = {key: i for i, key in enumerate(number)}
    width = dict.fromkeys(range(len(per_rank)), len(number))
    return _Emitter(number, column, width, across_ranks=True)


def _numbered(
    ranks: int, order: tuple[Slot, ...], keys: Mapping[int, ThreadblockKey]
) -> tuple[list[list[ThreadblockKey]], dict[ThreadblockKey, int]]:
    """Return the threadblocks of each rank, and their ids.

    Ids follow the first steps, so that a runtime that starts threadblocks by id follows the
    schedule's order.
    """
    per_rank: list[list[ThreadblockKey]] = [[] for _ in range(ranks)]
    number: dict[ThreadblockKey, int] = {}
    for slot in order:
        key = keys[slot.instruction]
        if key not in number:
            number[key] = len(per_rank[key.rank])
            per_rank[key.rank].append(key)
    return per_rank, number


class _ScratchMap:
    """Renumbering of the scratch chunks that steps use, without gaps."""

    def __init__(self, program: Program, dag: InstructionDag, order: tuple[Slot, ...]) -> None:
        used: dict[int, set[int]] = {rank: set() for rank in range(program.ranks)}
        for slot in order:
            for chunk in _touched(dag, slot):
                if chunk.buffer is Buffer.SCRATCH:
                    used[chunk.rank].update(unit.offset for unit in chunk.units())
        self._moved = {
            rank: {offset: i for i, offset in enumerate(sorted(offsets))}
            for rank, offsets in used.items()
        }

    def size(self, rank: int) -> int:
        return len(self._moved[rank])

    def reference(self, chunk: Chunk) -> ChunkRef:
        if chunk.buffer is not Buffer.SCRATCH:
            return ChunkRef(chunk.buffer, chunk.offset)
        return ChunkRef(chunk.buffer, self._moved[chunk.rank].get(chunk.offset, 0))


def _keeps_no_copy(dag: InstructionDag, slot: Slot) -> bool:
    """Return whether the fused send is the only reader of a receiving reduction's result."""
    return (
        slot.fused_send is not None
        and dag.instructions[slot.instruction].type is StepType.RECV_REDUCE_COPY
        and slot.instruction not in dag.surviving
        and dag.readers.get(slot.instruction) == frozenset({slot.fused_send})
    )


def _touched(dag: InstructionDag, slot: Slot) -> tuple[Chunk, ...]:
    instruction = dag.instructions[slot.instruction]
    if instruction.type is StepType.SEND or _keeps_no_copy(dag, slot):
        return (instruction.src,)
    return (instruction.src, instruction.dst)


def _step(dag: InstructionDag, slot: Slot, scratch: _ScratchMap) -> Step:
    instruction = dag.instructions[slot.instruction]
    kind, dst = instruction.type, instruction.dst
    if _keeps_no_copy(dag, slot):
        kind, dst = StepType.RECV_REDUCE_SEND, instruction.src
    elif slot.fused_send is not None:
        kind = _FUSED[kind]
    return Step(
        kind, scratch.reference(instruction.src), scratch.reference(dst), instruction.dst.count
    )
