"""MSCCL++ execution plans as values, and their text.

`mscclpp::Executor` runs a plan: per rank buffers, channels and threadblocks of operations. Keys,
their order and the operations are those of MSCCL++ 0.9 (src/core/executor/execution_plan.cc reads
plans, python/mscclpp/language writes them).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from synthesizer.ir.algorithm import Buffer

UNLIMITED_BYTES = 2**64 - 1
"""`max_message_size` of a plan without an upper limit."""


class OperationName(StrEnum):
    """The operations of a plan (`getOpType` of execution_plan.cc)."""

    NOP = "nop"
    BARRIER = "barrier"
    PUT = "put"
    PUT_WITH_SIGNAL = "pws"
    PUT_WITH_SIGNAL_AND_FLUSH = "pwsf"
    GET = "get"
    COPY = "copy"
    SIGNAL = "signal"
    WAIT = "wait"
    RELAXED_SIGNAL = "rlxsignal"
    RELAXED_WAIT = "rlxwait"
    FLUSH = "flush"
    REDUCE = "re"
    REDUCE_SEND = "res"
    READ_REDUCE = "rre"
    READ_REDUCE_SEND = "rres"
    PUT_PACKETS = "ppkt"
    READ_PUT_PACKETS = "rppkt"
    REDUCE_SEND_PACKETS = "respkt"
    COPY_PACKETS = "cpkt"
    UNPACK_PACKETS = "upkt"
    REDUCE_PACKETS = "repkt"
    REDUCE_COPY_PACKETS = "recpkt"
    REDUCE_COPY_SEND_PACKETS = "recspkt"
    SWITCH_LOAD_REDUCE_STORE = "glres"
    SWITCH_STORE = "gstore"
    SEM_ACQUIRE = "sem_acquire"
    SEM_RELEASE = "sem_release"
    PIPELINE = "pipeline"


class ChannelType(StrEnum):
    """The kind of channel to a peer."""

    MEMORY = "memory"
    PORT = "port"
    SWITCH = "switch"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_Count = Field(ge=0)


class BufferRange(_Model):
    """Neighbouring chunks of a local buffer, a remote buffer, or a switch channel."""

    type: Buffer | None = None
    buffer_id: int | None = Field(default=None, ge=0)
    switch_channel_id: int | None = Field(default=None, ge=0)
    index: int = _Count
    size: int = Field(ge=1)


class ThreadblockShare(_Model):
    """The share of an operation that a threadblock of a group does."""

    tb_id: int = _Count
    tbg_size: int = Field(ge=1)


class IterationContext(_Model):
    """The pieces into which a pipeline cuts its chunks."""

    unit_size: int = Field(ge=1)
    num_chunks: int = Field(ge=1)


class Operation(_Model):
    """One operation; ids of channels and remote buffers count within its threadblock."""

    name: OperationName
    iter_context: IterationContext | None = None
    ops: tuple[Operation, ...] | None = None
    src_buff: tuple[BufferRange, ...] | None = None
    dst_buff: tuple[BufferRange, ...] | None = None
    semaphore_ids: tuple[int, ...] | None = None
    barrier_id: int | None = Field(default=None, ge=0)
    num_threadblocks: int | None = Field(default=None, ge=1)
    channel_ids: tuple[int, ...] | None = None
    channel_type: ChannelType | None = None
    reduce_op: Literal["sum", "min", "max"] | None = None
    tbg_info: ThreadblockShare | None = None


class ThreadblockChannels(_Model):
    """Channels of the rank that a threadblock uses."""

    channel_type: ChannelType
    channel_ids: tuple[int, ...]


class RemoteBufferRefs(_Model):
    """Remote buffers of the rank that a threadblock uses."""

    access_channel_type: ChannelType
    remote_buffer_ids: tuple[int, ...]


class PlanThreadblock(_Model):
    """The operations of one threadblock, in order."""

    id: int = _Count
    ops: tuple[Operation, ...]
    channels: tuple[ThreadblockChannels, ...]
    remote_buffer_refs: tuple[RemoteBufferRefs, ...] = ()


class RankGroup(_Model):
    """Ranks behind one switch channel."""

    size: int = Field(ge=1)
    ranks: tuple[int, ...]


class Channels(_Model):
    """Channels of one type: the k-th to a peer is connected with the peer's k-th back."""

    channel_type: ChannelType
    connected_to: tuple[int, ...] | None = None
    buffer_type: Buffer | None = None
    rank_groups: tuple[RankGroup, ...] | None = None


class RemoteBuffer(_Model):
    """A buffer of another rank."""

    rank: int = _Count
    type: Buffer
    access_channel_types: tuple[ChannelType, ...]


class Semaphore(_Model):
    """A counter that threadblocks of a rank release and acquire."""

    init_value: int = _Count


class PlanGpu(_Model):
    """The plan of one rank."""

    id: int = _Count
    input_chunks: int = _Count
    output_chunks: int = _Count
    scratch_chunks: int = _Count
    threadblocks: tuple[PlanThreadblock, ...]
    channels: tuple[Channels, ...]
    remote_buffers: tuple[RemoteBuffer, ...] = ()
    semaphores: tuple[Semaphore, ...] = ()

    def peers(self, kind: ChannelType) -> tuple[int, ...]:
        """Return the peers of the channels of a type, by channel id."""
        return tuple(
            peer
            for channels in self.channels
            if channels.channel_type is kind
            for peer in channels.connected_to or ()
        )


class Plan(_Model):
    """An execution plan."""

    name: str
    collective: str
    protocol: Literal["Simple", "LL"]
    inplace: bool
    reuse_resources: bool = False
    gpus: tuple[PlanGpu, ...]
    num_threads_per_block: int = Field(default=1024, ge=1, le=1024)
    use_double_scratch_buffer: bool = False
    buffer_alignment: int = Field(default=16, ge=1)
    min_message_size: int = Field(default=0, ge=0, le=UNLIMITED_BYTES)
    max_message_size: int = Field(default=UNLIMITED_BYTES, ge=0, le=UNLIMITED_BYTES)


def plan_text(plan: Plan) -> str:
    """Return the plan as MSCCL++ writes it: JSON, two spaces of indent, a newline at the end."""
    return plan.model_dump_json(indent=2, exclude_none=True) + "\n"
