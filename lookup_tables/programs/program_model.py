"""`Program`: a schedule in the form that an executor runs, before it becomes bytes.

It is MSCCL-IR: per rank threadblocks with at most one send peer, one receive peer and a channel;
each runs its steps in order, and a step may wait for one of another threadblock of its rank. The
n-th send on a connection (sender, receiver, channel) is the n-th receive at its other end.

Offsets count chunks. The larger buffer of the operation has `chunks_per_loop` of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.programs.program_layout import NO_PEER, BufferCode, StepCode
from lookup_tables.table import Operation

DIVIDED = frozenset({Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALLTOALL})
"""Operations whose larger buffer has one part for each rank."""
ROOTED = frozenset({Operation.BROADCAST, Operation.REDUCE})
REDUCING = frozenset({Operation.REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_REDUCE})


@dataclass(frozen=True, slots=True)
class Place:
    """The first of some neighbouring chunks of a buffer."""

    buffer: BufferCode
    offset: int


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One instruction."""

    code: StepCode
    src: Place
    dst: Place
    count: int
    depends: tuple[int, int] | None
    """Threadblock of the same rank and its step."""


@dataclass(frozen=True, slots=True)
class ProgramBlock:
    """A threadblock."""

    send_peer: int
    receive_peer: int
    channel: int
    steps: tuple[ProgramStep, ...]


@dataclass(frozen=True, slots=True)
class RankProgram:
    """What one rank does."""

    scratch_chunks: int
    blocks: tuple[ProgramBlock, ...]

    @property
    def arriving(self) -> tuple[tuple[int, int], ...]:
        """Connections that arrive here, by number: their sender and channel."""
        return tuple(
            (block.receive_peer, block.channel)
            for block in self.blocks
            if block.receive_peer != NO_PEER
        )


@dataclass(frozen=True, slots=True)
class Program:
    """What all ranks do."""

    operation: Operation
    chunks_per_loop: int
    root: int
    in_place: bool
    """Whether it is right in place as well; out of place it always is."""
    ranks: tuple[RankProgram, ...]

    @property
    def part_chunks(self) -> int:
        """Chunks of one rank's part, or of the whole buffer where it is not divided."""
        divisor = len(self.ranks) if self.operation in DIVIDED else 1
        return self.chunks_per_loop // divisor

    def buffer_chunks(self, rank: int, buffer: BufferCode) -> int:
        """Chunks of a buffer; none where NCCL lets the caller pass a null pointer."""
        if buffer is BufferCode.SCRATCH:
            return self.ranks[rank].scratch_chunks
        part_of, null_but_root = (
            (Operation.ALL_GATHER, Operation.BROADCAST)
            if buffer is BufferCode.INPUT
            else (Operation.REDUCE_SCATTER, Operation.REDUCE)
        )
        if self.operation is part_of:
            return self.part_chunks
        if self.operation is null_but_root and rank != self.root:
            return 0
        return self.chunks_per_loop
