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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthesizer.formats.mscclpp_stream import Place
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Protocol, StepType
from synthesizer.ir.wiring import (
    READS_SRC,
    RECEIVING,
    WRITES_DST,
    Connection,
    Layout,
    Wiring,
    layout,
    wire,
)
from synthesizer.prove.defects import Defect
from synthesizer.prove.execution_order import execution_order
from tuccl.errors import ScheduleError

_COPIES = frozenset({StepType.RECV, StepType.RECV_COPY_SEND})

AT_DESTINATION = -1
"""Value of `Placement.slot` for a message that is put at the receiving step's destination."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The landing place of each receiving step's message."""

    slot: dict[int, int]
    """By receiving step: `AT_DESTINATION`, or the slot's first chunk among its rank's slots."""
    slot_chunks: dict[int, int]
    """Chunks of all slots, by rank."""


def place_messages(
    wiring: Wiring, order: Sequence[int], layouts: Sequence[Layout], *, in_slots: bool
) -> Placement:
    """Find a landing place for every message.

    The schedule was proved, and `order` respects every wait. With `in_slots`, as packets require,
    every message goes into a slot.
    """
    free = set() if in_slots else _free_destinations(wiring, order, layouts)
    slot: dict[int, int] = {}
    used: dict[int, int] = defaultdict(int)
    for node, step in enumerate(wiring.steps):
        if step.type not in RECEIVING:
            continue
        rank = wiring.blocks[wiring.block_of[node]][0]
        if node in free:
            slot[node] = AT_DESTINATION
        else:
            slot[node] = used[rank]
            used[rank] += step.count
    return Placement(slot, dict(used))


def _free_destinations(wiring: Wiring, order: Sequence[int], layouts: Sequence[Layout]) -> set[int]:
    """Return the receiving steps whose destination is free when their message is sent."""
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for node in range(len(wiring.steps)):
        for place in _touched(wiring, node, layouts):
            users[place].append(node)
    receives: dict[int, list[int]] = defaultdict(list)
    for node, step in enumerate(wiring.steps):
        if step.type in _COPIES:
            receives[wiring.blocks[wiring.block_of[node]][0]].append(node)
    free: set[int] = set()
    for rank, nodes in sorted(receives.items()):
        clocks = _Clocks(wiring, order, rank)
        for node in nodes:
            others = {user for place in _written(wiring, node, layouts) for user in users[place]}
            others.discard(node)
            send = wiring.source[node]
            if all(clocks.over(o, send) or clocks.over(node, o) for o in others):
                free.add(node)
    return free


class _Clocks:
    """Vector clocks: steps of each threadblock of one rank that end before a step moves data.

    Only a rank's own steps use its memory, so one rank's threadblocks at a time are enough.
    """

    def __init__(self, wiring: Wiring, order: Sequence[int], rank: int) -> None:
        own = [number for number, (home, _) in enumerate(wiring.blocks) if home == rank]
        self._wiring = wiring
        self._column = {block: column for column, block in enumerate(own)}
        self._begun: NDArray[np.int32] = np.zeros((len(wiring.steps), len(own)), np.int32)
        for node in order:
            if node > wiring.first[wiring.block_of[node]]:
                self._follow(node, node - 1)
            for earlier in (wiring.waits_for[node], wiring.source[node]):
                if earlier >= 0:
                    self._follow(node, earlier)

    def _follow(self, node: int, earlier: int) -> None:
        """Merge the clock of an earlier step, and that step itself, into this one's."""
        begun, block = self._begun[node], self._wiring.block_of[earlier]
        np.maximum(begun, self._begun[earlier], out=begun)
        column = self._column.get(block)
        if column is not None:
            begun[column] = max(begun[column], earlier - self._wiring.first[block] + 1)

    def over(self, node: int, later: int) -> bool:
        """Return whether a step of the rank ends before a step of any rank moves data."""
        block = self._wiring.block_of[node]
        return bool(self._begun[later, self._column[block]] > node - self._wiring.first[block])


def _touched(wiring: Wiring, node: int, layouts: Sequence[Layout]) -> Iterator[tuple[int, int]]:
    step = wiring.steps[node]
    rank = wiring.blocks[wiring.block_of[node]][0]
    if step.type in READS_SRC:
        first = layouts[rank].address(step.src)
        yield from ((rank, first + i) for i in range(step.count))
    yield from _written(wiring, node, layouts)


def _written(wiring: Wiring, node: int, layouts: Sequence[Layout]) -> Iterator[tuple[int, int]]:
    step = wiring.steps[node]
    if step.type in WRITES_DST:
        rank = wiring.blocks[wiring.block_of[node]][0]
        first = layouts[rank].address(step.dst)
        yield from ((rank, first + i) for i in range(step.count))


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
        self.wiring = wire(algorithm)
        order = execution_order(self.wiring, len(self.wiring.steps), None)
        if isinstance(order, Defect):
            raise ScheduleError(f"{algorithm.name}: {order.describe()}")
        layouts = [layout(algorithm, rank, in_place=in_place) for rank in range(algorithm.ranks)]
        self.placement: Placement = place_messages(
            self.wiring, order, layouts, in_slots=self.packets
        )
        self.receive_of = {
            send: receive for receive, send in enumerate(self.wiring.source) if send >= 0
        }
        self.connections: list[Connection] = sorted(
            {self._connection(send) for send in self.receive_of}
        )
        self.first_node = {
            (rank, block.id): self.wiring.first[number]
            for number, (rank, block) in enumerate(self.wiring.blocks)
        }

    def _connection(self, send: int) -> Connection:
        rank, block = self.wiring.blocks[self.wiring.block_of[send]]
        return rank, block.send_peer, block.channel

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

    def landing(self, node: int, *, seen_from: int) -> Place:
        """Return where a receiving step's message lands, as its own rank or the sender names it."""
        rank, _ = self.wiring.blocks[self.wiring.block_of[node]]
        peer = -1 if seen_from == rank else rank
        slot = self.placement.slot[node]
        if slot == AT_DESTINATION:
            place = self.local(rank, self.wiring.steps[node].dst)
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
