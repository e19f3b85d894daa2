"""Where the chunks of a schedule lie in the buffers of an MSCCL++ plan, and who is connected.

In place, a plan calls input and output by one name, as MSCCL++'s own plans do: the larger buffer of
all_gather and reduce_scatter, the input of all_reduce and alltoall. Scratch memory holds the
schedule's own scratch chunks and the slots of messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from synthesizer.errors import DefectError
from synthesizer.formats.mscclpp_placement import AT_DESTINATION, Placement, place_messages
from synthesizer.formats.mscclpp_stream import Place
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Protocol
from synthesizer.ir.collectives import Collective
from synthesizer.ir.layout import layout
from synthesizer.ir.wiring import Connection, wire
from synthesizer.prove.defects import Defect
from synthesizer.prove.execution_order import execution_order


@dataclass(frozen=True, slots=True)
class _Packets:
    """How a rank's scratch memory is divided with protocol LL.

    Packets take twice the room of their data, and the executor doubles the index of a packet, not
    that of plain data. Plain data therefore comes behind all packets, at twice their count.
    """

    slots: int
    plain: int

    @property
    def chunks(self) -> int:
        """What to declare."""
        return 2 * self.slots + self.plain if self.plain else self.slots


class PlanBuffers:
    """What all ranks need to know of each other."""

    def __init__(self, algorithm: Algorithm, *, in_place: bool) -> None:
        self.algorithm = algorithm
        self.in_place = in_place
        self.packets = algorithm.protocol is Protocol.LL
        self.wiring = wire(algorithm)
        order = execution_order(self.wiring, len(self.wiring.steps), None)
        if isinstance(order, Defect):
            raise DefectError(f"{algorithm.name}: {order.describe()}")
        layouts = [layout(algorithm, rank, in_place=in_place) for rank in range(algorithm.ranks)]
        self.placement: Placement = place_messages(
            self.wiring, order, layouts, in_slots=self.packets
        )
        self.taker = {giver: taker for taker, giver in enumerate(self.wiring.source) if giver >= 0}
        self.connections: list[Connection] = sorted(
            {self._connection(giver) for giver in self.taker}
        )
        self.first_node = {
            (rank, block.id): self.wiring.first[number]
            for number, (rank, block) in enumerate(self.wiring.blocks)
        }

    def _connection(self, giver: int) -> Connection:
        rank, block = self.wiring.blocks[self.wiring.block_of[giver]]
        return rank, block.send_peer, block.channel

    def local(self, rank: int, ref: ChunkRef) -> Place:
        """Where a chunk lies; in place, input and output go by one name."""
        buffer, index = ref.buffer, ref.offset
        part = self.algorithm.chunks_per_loop // self.algorithm.ranks
        if buffer is Buffer.SCRATCH:
            return Place(buffer, self._plain_base(rank) + index)
        if self.in_place:
            match self.algorithm.collective:
                case Collective.ALL_GATHER if buffer is Buffer.INPUT:
                    return Place(Buffer.OUTPUT, rank * part + index)
                case Collective.REDUCE_SCATTER if buffer is Buffer.OUTPUT:
                    return Place(Buffer.INPUT, rank * part + index)
                case Collective.BROADCAST if buffer is Buffer.INPUT:
                    return Place(Buffer.OUTPUT, index)
                case Collective.ALL_REDUCE | Collective.ALLTOALL:
                    return Place(Buffer.INPUT, index)
        return Place(buffer, index)

    def landing(self, node: int, *, seen_from: int) -> Place:
        """Where the message of a receiving step lands, as its own rank or as the sender says it."""
        rank, _ = self.wiring.blocks[self.wiring.block_of[node]]
        peer = -1 if seen_from == rank else rank
        slot = self.placement.slot[node]
        if slot == AT_DESTINATION:
            place = self.local(rank, self.wiring.steps[node].dst)
            return Place(place.buffer, place.index, peer)
        base = 0 if self.packets else self.algorithm.programs[rank].scratch_chunks
        return Place(Buffer.SCRATCH, base + slot, peer, self.packets)

    def scratch_chunks(self, rank: int, spare: int) -> int:
        """Scratch chunks of a rank; `spare` for sums that the schedule does not keep."""
        own = self.algorithm.programs[rank].scratch_chunks
        slots = self.placement.slot_chunks.get(rank, 0)
        return _Packets(slots, own + spare).chunks if self.packets else own + slots

    def spare(self, rank: int, offset: int) -> Place:
        """A place for a sum that the schedule does not keep."""
        own = self.algorithm.programs[rank].scratch_chunks
        return Place(Buffer.SCRATCH, self._plain_base(rank) + own + offset)

    def _plain_base(self, rank: int) -> int:
        return 2 * self.placement.slot_chunks.get(rank, 0) if self.packets else 0
