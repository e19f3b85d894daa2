"""Locations of a schedule's chunks in the buffers of an MSCCL++ plan, and the plan's connections.

In place, a plan has one name for input and output, as MSCCL++'s own plans do: the larger buffer for
all_gather and reduce_scatter, the input for all_reduce and alltoall. Scratch memory holds the
schedule's own scratch chunks and the slots of messages.

MSCCL's connections are FIFOs: a receiver takes a message when it is ready for it. MSCCL++ has
one-sided puts instead, so each message needs memory at the receiver that no step uses during the
put. That is its final destination if the schedule's order proves it free; else a scratch slot of
its own.

A destination is free if every other step of the receiver that touches it ends before the sending
step begins, or begins after the receiving step. The order comes from vector clocks over
threadblocks, with program order, dependences and messages; a message counts from the end of its
send, because a signal follows a put.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthesizer.formats.mscclpp_stream import Place
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Protocol, StepType
from synthesizer.prove.step_table import BUFFERS, Memory, StepTable, step_table, units
from synthesizer.prove.waves import Waves, in_waves
from tuccl.errors import ScheduleError

Connection = tuple[int, int, int]
"""Source rank, destination rank, channel."""

AT_DESTINATION = -1
"""Value of `Placement.slot` for a message that is put at the receiving step's destination."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The landing place of each receiving step's message."""

    slot: dict[int, int]
    """By receiving step: `AT_DESTINATION`, or the slot's first chunk among its rank's slots."""
    slot_chunks: dict[int, int]
    """Chunks of all slots, by rank."""


def place_messages(table: StepTable, waves: Waves, memory: Memory, *, in_slots: bool) -> Placement:
    """Find a landing place for every message of a schedule that was proved.

    With `in_slots`, as packets require, every message goes into a slot.
    """
    free = set() if in_slots else _free_destinations(table, waves, memory)
    slot: dict[int, int] = {}
    used: dict[int, int] = defaultdict(int)
    for step in np.flatnonzero(table.receives).tolist():
        rank = int(table.rank[step])
        if step in free:
            slot[step] = AT_DESTINATION
        else:
            slot[step] = used[rank]
            used[rank] += int(table.count[step])
    return Placement(slot, dict(used))


def _free_destinations(table: StepTable, waves: Waves, memory: Memory) -> set[int]:
    """Return the receiving steps whose destination is free when their message is sent."""
    users: dict[int, set[int]] = defaultdict(set)
    for touches, first in ((table.reads, memory.source), (table.writes, memory.target)):
        user, place = units(table, np.flatnonzero(touches))
        for address, step in zip((first[user] + place).tolist(), user.tolist(), strict=True):
            users[address].add(step)
    copies = table.are(StepType.RECV) | table.are(StepType.RECV_COPY_SEND)
    free: set[int] = set()
    for rank in np.unique(table.rank[copies]).tolist():
        clocks = _Clocks(table, waves, rank)
        for step in np.flatnonzero(copies & (table.rank == rank)).tolist():
            first, send = int(memory.target[step]), int(waves.source[step])
            written = range(first, first + int(table.count[step]))
            others = {user for address in written for user in users[address]} - {step}
            if all(clocks.over(other, send) or clocks.over(step, other) for other in others):
                free.add(step)
    return free


class _Clocks:
    """Vector clocks: steps of each threadblock of one rank that end before a step moves data.

    Only a rank's own steps use its memory, so one rank's threadblocks at a time are enough.
    """

    def __init__(self, table: StepTable, waves: Waves, rank: int) -> None:
        self._table = table
        first, end = table.first_block[rank : rank + 2].tolist()
        self._first_block = first
        self._begun: NDArray[np.int32] = np.zeros((table.steps, end - first), np.int32)
        for step in waves.order.tolist():
            if table.position[step] > 0:
                self._follow(step, step - 1)
            for earlier in (int(waves.waits_for[step]), int(waves.source[step])):
                if earlier >= 0:
                    self._follow(step, earlier)

    def _follow(self, step: int, earlier: int) -> None:
        """Merge the clock of an earlier step, and that step itself, into this one's."""
        begun = self._begun[step]
        np.maximum(begun, self._begun[earlier], out=begun)
        column = self._table.block[earlier] - self._first_block
        if 0 <= column < len(begun):
            begun[column] = max(begun[column], self._table.position[earlier] + 1)

    def over(self, step: int, later: int) -> bool:
        """Return whether a step of the rank ends before a step of any rank moves data."""
        column = self._table.block[step] - self._first_block
        return bool(self._begun[later, column] > self._table.position[step])


@dataclass(frozen=True, slots=True)
class _Packets:
    """The layout of a rank's scratch memory with protocol LL.

    Packets take twice the size of their data, and the executor doubles the index of a packet, not
    that of plain data. Plain data therefore follows all packets, at twice their count.
    """

    slots: int
    plain: int

    @property
    def chunks(self) -> int:
        """Scratch chunks to declare."""
        return 2 * self.slots + self.plain if self.plain else self.slots


class PlanBuffers:
    """Placement of messages and connections of all ranks."""

    def __init__(self, algorithm: Algorithm, *, in_place: bool) -> None:
        self.algorithm = algorithm
        self.in_place = in_place
        self.packets = algorithm.protocol is Protocol.LL
        table = self._table = step_table(algorithm)
        waves = in_waves(table, slots=max(1, table.steps))
        if isinstance(waves, list):
            raise ScheduleError(f"{algorithm.name}: {waves[0].describe()}")
        memory = Memory(algorithm, table, in_place=in_place)
        self.placement: Placement = place_messages(table, waves, memory, in_slots=self.packets)
        receives = np.flatnonzero(waves.source >= 0)
        sends = waves.source[receives]
        self.receive_of: dict[int, int] = dict(zip(sends.tolist(), receives.tolist(), strict=True))
        block = table.block[sends]
        ends = (table.block_rank, table.send_peer, table.channel)
        self.connections: list[Connection] = sorted(
            set(zip(*(column[block].tolist() for column in ends), strict=True))
        )
        self.first_step = {table.place(step)[:2]: step for step in table.first[:-1].tolist()}

    def local(self, rank: int, ref: ChunkRef) -> Place:
        """Return the location of a chunk; in place, input and output have one name."""
        buffer, index = ref.buffer, ref.offset
        share = self.algorithm.chunks_per_loop // self.algorithm.ranks
        if buffer is Buffer.SCRATCH:
            return Place(buffer, self._plain_base(rank) + index)
        if self.in_place:
            collective = self.algorithm.collective
            one = (
                Buffer.OUTPUT if collective.input_is_part or collective.from_root else Buffer.INPUT
            )
            is_part = collective.input_is_part or collective.output_is_part
            return Place(one, index + (rank * share if is_part and buffer is not one else 0))
        return Place(buffer, index)

    def landing(self, step: int, *, seen_from: int) -> Place:
        """Return where a receiving step's message lands, as its own rank or the sender names it."""
        table = self._table
        rank = int(table.rank[step])
        peer = -1 if seen_from == rank else rank
        slot = self.placement.slot[step]
        if slot == AT_DESTINATION:
            buffer, offset = BUFFERS[table.dst_buffer[step]], int(table.dst_offset[step])
            place = self.local(rank, ChunkRef(buffer, offset))
            return Place(place.buffer, place.index, peer)
        base = 0 if self.packets else self.algorithm.programs[rank].scratch_chunks
        return Place(Buffer.SCRATCH, base + slot, peer, self.packets)

    def scratch_chunks(self, rank: int, spare: int) -> int:
        """Return the scratch chunks of a rank; `spare` is for sums that the schedule drops."""
        own = self.algorithm.programs[rank].scratch_chunks
        slots = self.placement.slot_chunks.get(rank, 0)
        return _Packets(slots, own + spare).chunks if self.packets else own + slots

    def spare(self, rank: int, offset: int) -> Place:
        """Return a location for a sum that the schedule drops."""
        own = self.algorithm.programs[rank].scratch_chunks
        return Place(Buffer.SCRATCH, self._plain_base(rank) + own + offset)

    def _plain_base(self, rank: int) -> int:
        return 2 * self.placement.slot_chunks.get(rank, 0) if self.packets else 0
