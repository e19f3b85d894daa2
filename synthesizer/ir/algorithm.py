"""`Algorithm`: a schedule in MSCCL-IR, the synthesizer's output.

Each rank has threadblocks with at most one send peer, one receive peer and a channel. A threadblock
runs its steps in order, and a step may wait for a step of another threadblock of the same rank. The
k-th send on a connection (src, dst, channel) matches its k-th receive. Semantics follow MSCCLang
(sections 4 and 5) and the MSCCL runtime's XML.

A chunk offset counts chunks of `1 / chunks_per_loop` of the collective's larger buffer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from lookup_tables.collective import Collective
from synthesizer.ir.contents import Sum


class Buffer(StrEnum):
    """The buffers of a rank."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


class StepType(StrEnum):
    """The instructions of MSCCL-IR."""

    SEND = "s"
    RECV = "r"
    RECV_COPY_SEND = "rcs"
    RECV_REDUCE_COPY = "rrc"
    RECV_REDUCE_SEND = "rrs"
    RECV_REDUCE_COPY_SEND = "rrcs"
    REDUCE = "re"
    COPY = "cpy"
    NOP = "nop"

    @property
    def receives(self) -> bool:
        """Whether the step receives a message from the receive peer."""
        return self.value.startswith("r") and self is not StepType.REDUCE

    @property
    def reduces(self) -> bool:
        """Whether the step reduces with local data."""
        return self in {
            StepType.RECV_REDUCE_COPY,
            StepType.RECV_REDUCE_SEND,
            StepType.RECV_REDUCE_COPY_SEND,
            StepType.REDUCE,
        }

    @property
    def reads_source(self) -> bool:
        """Whether the step reads its source operand; `r` and `rcs` pass on their message."""
        return self.reduces or self in {StepType.SEND, StepType.COPY}

    @property
    def writes(self) -> bool:
        """Whether the step writes its destination."""
        return self not in {StepType.SEND, StepType.RECV_REDUCE_SEND, StepType.NOP}

    @property
    def sends(self) -> bool:
        """Whether the step sends a message to the send peer."""
        return self in {
            StepType.SEND,
            StepType.RECV_COPY_SEND,
            StepType.RECV_REDUCE_SEND,
            StepType.RECV_REDUCE_COPY_SEND,
        }


class Protocol(StrEnum):
    """NCCL's protocols: how data and flags travel."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """The first of `Step.count` consecutive chunks of a buffer."""

    buffer: Buffer
    offset: int


@dataclass(frozen=True, slots=True)
class StepRef:
    """A step of another threadblock of the same rank."""

    threadblock: int
    step: int


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction."""

    type: StepType
    src: ChunkRef
    """Local operand: sent, copied, or reduced with the message; `dst` itself for `r` and `rcs`."""
    dst: ChunkRef
    """Local destination; for `s` the remote destination (informative)."""
    count: int = 1
    depends: StepRef | None = None


@dataclass(frozen=True, slots=True)
class Threadblock:
    """Steps that run in order, and their connections."""

    id: int
    send_peer: int
    """Rank that it sends to, -1 for none."""
    recv_peer: int
    """Rank that it receives from, -1 for none."""
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class GpuProgram:
    """The threadblocks and buffer sizes of one rank."""

    rank: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    threadblocks: tuple[Threadblock, ...]


@dataclass(frozen=True)
class Algorithm:
    """A schedule for all ranks."""

    name: str
    collective: Collective
    protocol: Protocol
    channels: int
    chunks_per_loop: int
    in_place: bool
    out_of_place: bool
    programs: tuple[GpuProgram, ...]
    min_bytes: int = 0
    max_bytes: int = 0
    """Largest size in bytes; 0: no limit."""
    root: int = 0
    """Root of broadcast and reduce."""
    results: tuple[tuple[Sum | None, ...], ...] = ()
    """What the first output chunks of each rank must hold at the end, if the operation is custom;
    None, as all further chunks, for anything. Empty if the author did not say."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.programs)

    @property
    def step_count(self) -> int:
        """Number of steps over all ranks."""
        return sum(len(tb.steps) for gpu in self.programs for tb in gpu.threadblocks)

    def content_hash(self) -> str:
        """Return 16 hex digits that identify the programs, whatever name, sizes and protocol."""
        body = repr((self.collective, self.chunks_per_loop, self.root, self.programs))
        return hashlib.sha256(body.encode()).hexdigest()[:16]
