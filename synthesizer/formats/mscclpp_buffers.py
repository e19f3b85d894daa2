"""Locations of a schedule's chunks in the buffers of an MSCCL++ plan, and the plan's connections.

In place, a plan has one name for input and output, as MSCCL++'s own plans do: the larger buffer for
all_gather and reduce_scatter, the input for all_reduce and alltoall. Scratch memory holds the
schedule's own scratch chunks and the slots of messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from synthesizer.formats.mscclpp_placement import AT_DESTINATION, Placement, place_messages
from synthesizer.formats.mscclpp_stream import Place
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Protocol
from synthesizer.ir.collectives import Collective
from synthesizer.ir.layout import layout
from synthesizer.ir.wiring import Connection, wire
from synthesizer.prove.defects import Defect
from synthesizer.prove.execution_order import execution_order
from tuccl.errors import ScheduleError


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
            match self.algorithm.collective:
                case Collective.ALL_GATHER if buffer is Buffer.INPUT:
                    return Place(Buffer.OUTPUT, rank * share + index)
                case Collective.REDUCE_SCATTER if buffer is Buffer.OUTPUT:
                    return Place(Buffer.INPUT, rank * share + index)
                case Collective.BROADCAST if buffer is Buffer.INPUT:
                    return Place(Buffer.OUTPUT, index)
                case Collective.ALL_REDUCE | Collective.ALLTOALL:
                    return Place(Buffer.INPUT, index)
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
