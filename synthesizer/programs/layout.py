"""The records of a program, shared by compiler and reader.

`lookup_tables.program_header` defines the header, `tuccl/runtime/program_layout.h` all records in
C, and docs/reference/bundle-format.md describes them. All integers are little-endian; every record
is a multiple of 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from lookup_tables import program_header
from synthesizer.ir.algorithm import Buffer, StepType
from tuccl.errors import NoProgramError

RUNS_IN_PLACE = 1
"""Header flag: also correct in place."""
AVERAGES = 2
"""Header flag: averages are right, too."""
IS_UNIFORM = 4
"""Header flag: all ranks do the same, and one record stands for all of them."""
HAS_DEPENDENT = 1
"""Step flag: another threadblock waits for it."""
COMPLETES = 2
"""Flag of a step or statement: its sum holds every rank's contribution, so an average is divided
here."""
ADDS = 1
"""Statement flag: the target becomes the operand and the source added up."""

MOST_CHUNKS = 1 << 16
"""Most chunks of a buffer."""
MOST_NODES = 1 << 12
MOST_ROUNDS = 64
"""Most rounds: each waits for the network, tens of microseconds."""
MOST_PHASES = 2 * MOST_ROUNDS + 1
MOST_LANES = 8
MOST_CHUNKS_MOVED = 1 << 18
"""Most chunks of all statements together."""
MOST_THREADBLOCKS = 80
"""Most threadblocks of a rank: so many are resident at once on every supported GPU."""
MOST_STEPS = 0xFFFF
"""Most steps of a threadblock, and most chunks of a step."""
MOST_CHANNEL = 0xFFFF
SLOTS = 8
"""Messages that a connection holds before its sender waits."""
NO_PEER = -1
NO_CONNECTION = 0xFFFF
NO_DEPENDENCE = -1

STEP_TYPES = (
    StepType.SEND,
    StepType.RECV,
    StepType.RECV_COPY_SEND,
    StepType.RECV_REDUCE_COPY,
    StepType.RECV_REDUCE_SEND,
    StepType.RECV_REDUCE_COPY_SEND,
    StepType.REDUCE,
    StepType.COPY,
    StepType.NOP,
)
"""Step types by code."""
SENDING_CODES = frozenset({0, 2, 4, 5})
BUFFERS = (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH)
"""Buffers by code."""


class Pattern(IntEnum):
    """A data flow with a kernel of its own (tuccl/runtime/executor/executor.h)."""

    NONE = 0
    ONE_PHASE = 1
    """all_reduce: every rank sends its whole buffer to all ranks."""
    TWO_PHASE = 2
    """all_reduce: every rank reduces a shard and sends it to all ranks."""
    DIRECT = 3
    """Any other operation: every rank sends directly to the ranks that need its data."""


class PhaseKind(IntEnum):
    """What a phase consists of, by code."""

    STEPS = 0
    """Steps of threadblocks, of the ranks of one node. The only phase."""
    LOCAL = 1
    """A collective of the ranks of each node, by the executor's kernels."""
    RAIL = 2
    """A collective of the ranks of each rail, by NCCL."""
    SUM = 3
    """The reduction of adjacent chunks of each rank."""
    STAGE = 4
    """Statements inside nodes, which have effect one after the other."""
    ROUND = 5
    """Copies between nodes, which have effect at once."""


class RankRecord(NamedTuple):
    """A rank, or all ranks of a uniform program."""

    node: int
    scratch_chunks: int
    first_threadblock: int = 0
    threadblocks: int = 0
    connections: int = 0
    """Connections that arrive."""


class PhaseRecord(NamedTuple):
    """A phase. Of STAGE and ROUND, `source` is the first statement and `chunks` their number."""

    kind: int
    operation: int = 0
    source_buffer: int = 0
    target_buffer: int = 0
    source: int = 0
    target: int = 0
    chunks: int = 0
    repeats: int = 0
    source_stride: int = 0
    target_stride: int = 0
    pattern: int = 0
    rail_algorithm: int = 0
    """Of RAIL: NCCL's algorithm + 1; 0: NCCL's own choice."""
    rail_protocol: int = 0
    rail_nchannels: int = 0


class ThreadblockRecord(NamedTuple):
    """A threadblock, with the numbers of its connections where they arrive."""

    send_peer: int
    receive_peer: int
    channel: int
    zero: int
    send_connection: int
    receive_connection: int
    first_step: int
    steps: int
    also_zero: int = 0


class StepRecord(NamedTuple):
    """A step, with the threadblock of its rank and the step there that it waits for."""

    type: int
    source_buffer: int
    target_buffer: int
    flags: int
    source: int
    target: int
    chunks: int
    awaited_threadblock: int
    awaited_step: int


class StatementRecord(NamedTuple):
    """A copy or a sum; the operand is on the target's rank."""

    flags: int
    source_buffer: int
    target_buffer: int
    operand_buffer: int
    source: int
    target: int
    operand: int
    source_rank: int
    target_rank: int
    chunks: int


RANK = struct.Struct("<IIIHH")
PHASE = struct.Struct("<BBBBIIIIIIBBBB")
THREADBLOCK = struct.Struct("<hhHHHHIII")
STEP = struct.Struct("<BBBBIIIiI")
STATEMENT = struct.Struct("<BBBBIIIHHI")


@dataclass(frozen=True, slots=True)
class Records:
    """All that a program says."""

    operation: int
    flags: int
    root: int
    ranks: int
    nodes: int
    chunks: int
    rank_records: tuple[RankRecord, ...]
    phases: tuple[PhaseRecord, ...]
    lanes: int = 1
    threadblocks: tuple[ThreadblockRecord, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    statements: tuple[StatementRecord, ...] = ()

    def packed(self) -> bytes:
        """Return the program.

        Raises:
            NoProgramError: It takes more bytes than a program may.
        """
        body = b"".join(
            form.pack(*record)
            for form, records in zip(_FORMS, self._parts(), strict=True)
            for record in records
        )
        total = program_header.HEADER.size + len(body)
        if total > program_header.MOST_BYTES:
            most = program_header.MOST_BYTES
            raise NoProgramError(f"it takes {total} bytes, at most {most} are allowed")
        head = program_header.Header(
            *(self.operation, self.flags, self.root, self.ranks, self.nodes, self.chunks),
            *(len(self.phases), self.lanes, len(self.threadblocks), len(self.steps)),
            len(self.statements),
            max(rank.scratch_chunks for rank in self.rank_records),
            max(rank.threadblocks for rank in self.rank_records),
            max(rank.connections for rank in self.rank_records),
            max((step.chunks for step in self.steps if step.type in SENDING_CODES), default=0),
            max((block.steps for block in self.threadblocks), default=0),
        )
        sums = (program_header.MAGIC, program_header.VERSION, 0, bytes(program_header.HASH_BYTES))
        return program_header.sealed(program_header.HEADER.pack(*sums, total, 0, *head, 0) + body)

    def _parts(self) -> tuple[Iterable[tuple[int, ...]], ...]:
        return self.rank_records, self.phases, self.threadblocks, self.steps, self.statements


_FORMS = (RANK, PHASE, THREADBLOCK, STEP, STATEMENT)


def unpacked(data: bytes) -> Records:
    """Return the records of a program whose seal is right.

    Raises:
        ValueError: Its size is not that of its records, or it has no phases.
    """
    head = program_header.header_of(data)
    counts = (
        1 if head.flags & IS_UNIFORM else head.ranks,
        *(head.phases, head.threadblocks, head.steps, head.statements),
    )
    sizes = [count * form.size for count, form in zip(counts, _FORMS, strict=True)]
    if program_header.HEADER.size + sum(sizes) != len(data) or not head.phases:
        raise ValueError("its size is not that of its records")
    ranks, phases, blocks, steps, statements = _parts_of(data, sizes)
    return Records(
        *head[:6],
        tuple(RankRecord(*raw) for raw in ranks),
        tuple(PhaseRecord(*raw) for raw in phases),
        head.lanes,
        tuple(ThreadblockRecord(*raw) for raw in blocks),
        tuple(StepRecord(*raw) for raw in steps),
        tuple(StatementRecord(*raw) for raw in statements),
    )


def _parts_of(data: bytes, sizes: Iterable[int]) -> Iterator[Iterator[tuple[int, ...]]]:
    at = program_header.HEADER.size
    for form, size in zip(_FORMS, sizes, strict=True):
        yield form.iter_unpack(data[at : at + size])
        at += size


def pattern_in(program: bytes) -> Pattern:
    """Return the pattern whose kernel runs a program; `Pattern.NONE`: it is interpreted."""
    records = unpacked(program)
    first = records.phases[0]
    has_kernel = first.kind == PhaseKind.STEPS and records.ranks <= program_header.MOST_KERNEL_RANKS
    return Pattern(first.pattern) if has_kernel else Pattern.NONE
