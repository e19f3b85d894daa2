"""The operations of one threadblock of an MSCCL++ plan, with the barriers between them.

The executor's threads run through the operations independently: only a `nop` (`__syncthreads`)
synchronises them between two operations, and one thread waits and signals for all. So a nop goes
before an operation on data that a wait or an earlier operation concerns, and before every signal
and release. A threadblock holds 64 operations; a longer sequence continues in another threadblock,
which a semaphore starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from synthesizer.formats.mscclpp_plan_file import (
    BufferRange,
    ChannelType,
    Operation,
    OperationName,
    PlanThreadblock,
    RemoteBufferRefs,
    ThreadblockChannels,
)
from synthesizer.ir.algorithm import Buffer

MAX_OPERATIONS = 64
"""Most operations of a threadblock (`MAX_OPERATION` of execution_common.hpp)."""
MAX_SEMAPHORES = 16
"""Most semaphores of one operation (`MAX_DEVICE_SEMAPHORES`)."""
_MOST_OPERATIONS_PER_STEP = 16
"""Two acquires, ready and wait, two moves, signal, two releases, the nops, the continuation."""

_MEMORY = ChannelType.MEMORY
_REDUCING = frozenset(
    {
        OperationName.REDUCE,
        OperationName.REDUCE_SEND,
        OperationName.REDUCE_PACKETS,
        OperationName.REDUCE_SEND_PACKETS,
    }
)
_NOP = Operation(name=OperationName.NOP)


@dataclass(frozen=True, slots=True)
class Place:
    """The first of several neighbouring chunks in the plan's numbering."""

    buffer: Buffer
    index: int
    peer: int = -1
    """The rank that holds them; -1 for the rank itself."""
    packets: bool = False
    """Whether the chunks are packets: then each carries its own flag and needs no nop."""


@dataclass
class _Draft:
    """A threadblock of the plan under construction."""

    ops: list[Operation] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)

    def local_id(self, known: list[int], number: int) -> int:
        if number not in known:
            known.append(number)
        return known.index(number)

    def threadblock(self, number: int) -> PlanThreadblock:
        channels = (ThreadblockChannels(channel_type=_MEMORY, channel_ids=tuple(self.channels)),)
        buffers = (
            RemoteBufferRefs(access_channel_type=_MEMORY, remote_buffer_ids=tuple(self.buffers)),
        )
        return PlanThreadblock(
            id=number,
            ops=tuple(self.ops),
            channels=channels if self.channels else (),
            remote_buffer_refs=buffers if self.buffers else (),
        )


_Range = tuple[Buffer, int, int]
"""Buffer, first chunk, and the chunk after the last."""


class Stream:
    """Appends operations with the nops between them."""

    def __init__(
        self,
        remote_buffer: Callable[[int, Buffer], int],
        new_semaphore: Callable[[], int],
        *,
        nop_per_step: bool,
    ) -> None:
        self.drafts = [_Draft()]
        self._remote_buffer = remote_buffer
        self._new_semaphore = new_semaphore
        self._nop_per_step = nop_per_step
        self._waited = False
        self._moved = False
        self._read: list[_Range] = []
        self._written: list[_Range] = []

    @property
    def _draft(self) -> _Draft:
        return self.drafts[-1]

    def begin_step(self) -> None:
        """Prepare for a step: start a new threadblock if this one is nearly full."""
        if len(self._draft.ops) + _MOST_OPERATIONS_PER_STEP > MAX_OPERATIONS:
            continuation = self._new_semaphore()
            self.release([continuation])
            self.drafts.append(_Draft())
            self.acquire([continuation])
        if self._nop_per_step and self._moved:
            self._nop()

    def acquire(self, semaphores: Sequence[int]) -> None:
        """Wait for semaphores."""
        self._on_semaphores(OperationName.SEM_ACQUIRE, semaphores)
        self._waited = self._waited or bool(semaphores)

    def release(self, semaphores: Sequence[int]) -> None:
        """Release semaphores when all operations so far are done."""
        if semaphores:
            self._settle()
        self._on_semaphores(OperationName.SEM_RELEASE, semaphores)

    def wait(self, channel: int, *, relaxed: bool = False) -> None:
        """Wait for the peer's next signal."""
        name = OperationName.RELAXED_WAIT if relaxed else OperationName.WAIT
        self._on_channel(name, channel)
        self._waited = True

    def signal(self, channel: int, *, relaxed: bool = False) -> None:
        """Signal the peer when all operations so far are done."""
        self._settle()
        name = OperationName.RELAXED_SIGNAL if relaxed else OperationName.SIGNAL
        self._on_channel(name, channel)

    def move(
        self,
        name: OperationName,
        sources: Sequence[Place],
        targets: Sequence[Place],
        count: int,
        channel: int | None = None,
    ) -> None:
        """Copy or reduce chunks; `channel` leads to the peer of a remote target."""
        reads = list(_ranges(sources, count))
        writes = list(_ranges(targets, count))
        conflict = _overlap(writes, [*self._read, *self._written]) or _overlap(reads, self._written)
        if self._waited or conflict:
            self._nop()
        if channel is not None:
            self._draft.local_id(self._draft.channels, channel)
        self._draft.ops.append(
            Operation(
                name=name,
                src_buff=tuple(self._buffer(place, count) for place in sources),
                dst_buff=tuple(self._buffer(place, count) for place in targets),
                channel_type=None if channel is None else _MEMORY,
                reduce_op="sum" if name in _REDUCING else None,
            )
        )
        self._moved = True
        self._read += reads
        self._written += writes

    def _buffer(self, place: Place, count: int) -> BufferRange:
        if place.peer < 0:
            return BufferRange(type=place.buffer, index=place.index, size=count)
        remote = self._remote_buffer(place.peer, place.buffer)
        number = self._draft.local_id(self._draft.buffers, remote)
        return BufferRange(buffer_id=number, index=place.index, size=count)

    def _on_channel(self, name: OperationName, channel: int) -> None:
        number = self._draft.local_id(self._draft.channels, channel)
        self._draft.ops.append(Operation(name=name, channel_ids=(number,), channel_type=_MEMORY))

    def _on_semaphores(self, name: OperationName, semaphores: Sequence[int]) -> None:
        for first in range(0, len(semaphores), MAX_SEMAPHORES):
            ids = tuple(semaphores[first : first + MAX_SEMAPHORES])
            self._draft.ops.append(Operation(name=name, semaphore_ids=ids))

    def _settle(self) -> None:
        """Append a nop if a thread may still lag behind a wait or a move."""
        if self._waited or self._moved:
            self._nop()

    def _nop(self) -> None:
        self._draft.ops.append(_NOP)
        self._waited = self._moved = False
        self._read, self._written = [], []


def _ranges(places: Sequence[Place], count: int) -> Iterator[_Range]:
    """Yield the ranges of local chunks that are not packets."""
    return (
        (place.buffer, place.index, place.index + count)
        for place in places
        if place.peer < 0 and not place.packets
    )


def _overlap(left: Sequence[_Range], right: Sequence[_Range]) -> bool:
    return any(a[0] is b[0] and a[1] < b[2] and b[1] < a[2] for a in left for b in right)
