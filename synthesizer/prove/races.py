"""Data races: two steps of a rank access a chunk, one of them writes, and nothing orders them.

Two steps are ordered if a chain of program order, dependences and messages leads from the end of
one to the start of the other. FIFO slots imply no order: a runtime may have more of them than a
proof assumes. The order is kept as vector clocks with an entry per threadblock, and each chunk has
its last write and the reads since (FastTrack, Flanagan and Freund, PLDI 2009).

Messages stream: a fused step forwards the first elements before the last have arrived. The output
of a chain of fused steps therefore follows only the *start* of the step that sent the data, and a
source operand may be read before the message arrives. A fused step may also send before it stores
(MSCCL src/collectives/device/prims_ll.h), so its message does not imply that its own destination is
written. Each step therefore has two ticks, its read and its write.

Nearly all schedules order their steps within the rank. So clocks per rank without messages come
first; only ranks where they do not suffice get clocks that follow messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.algorithm import StepType
from synthesizer.ir.wiring import READS_SRC, SENDING, WRITES_DST, Layout, Wiring
from synthesizer.prove.defects import Defect, DefectKind

Clock = NDArray[np.int32]

_COLUMNS = 512
"""Most threadblocks whose order is followed at once, which bounds the memory of saved clocks."""


@dataclass(frozen=True, slots=True)
class _Access:
    """An access of a chunk: threadblock, tick in the threadblock's own time (`_ticks`), step."""

    block: int
    tick: int
    node: int


@dataclass(slots=True)
class _Chunk:
    """The accesses of a chunk with which a later one could race."""

    write: _Access | None = None
    reads: dict[int, _Access] = field(default_factory=dict)


class _History:
    """Chunks of one rank and their races, one per pair of threadblocks."""

    def __init__(self) -> None:
        self.chunks: dict[int, _Chunk] = {}
        self.races: dict[tuple[int, int], tuple[int, int, int]] = {}

    def read(self, address: int, access: _Access, clock: Clock, column: Sequence[int]) -> None:
        """Record a read; `clock` counts the steps that finish before it."""
        chunk = self.chunks.setdefault(address, _Chunk())
        self._check(chunk.write, access, address, clock, column)
        chunk.reads[access.block] = access

    def write(self, address: int, access: _Access, clock: Clock, column: Sequence[int]) -> None:
        """Record a write; `clock` counts the steps that finish before it."""
        chunk = self.chunks.setdefault(address, _Chunk())
        self._check(chunk.write, access, address, clock, column)
        for earlier in chunk.reads.values():
            self._check(earlier, access, address, clock, column)
        chunk.write = access
        chunk.reads.clear()

    def _check(
        self,
        earlier: _Access | None,
        access: _Access,
        address: int,
        clock: Clock,
        column: Sequence[int],
    ) -> None:
        if earlier is None or earlier.block == access.block:
            return
        if clock[column[earlier.block]] < earlier.tick:
            pair = (earlier.block, access.block)
            self.races.setdefault(pair, (earlier.node, access.node, address))


def find_races(wiring: Wiring, order: Sequence[int], layouts: Sequence[Layout]) -> list[Defect]:
    """Return the pairs of steps that race, at most one per pair of threadblocks.

    `order` respects every wait.
    """
    local: list[int] = []
    width: dict[int, int] = {}
    for rank, _ in wiring.blocks:
        local.append(width.get(rank, 0))
        width[rank] = local[-1] + 1
    clocks = _Clocks(wiring, local, [width[rank] for rank, _ in wiring.blocks])
    all_ranks = frozenset(width)
    suspects = _scan(wiring, order, layouts, clocks, all_ranks)
    defects: list[Defect] = []
    for ranks in _batches(sorted(suspects), width):
        column, columns = _shared_columns(wiring, ranks)
        travelling = _TravellingClocks(wiring, column, [columns] * len(wiring.blocks))
        for rank, races in sorted(_scan(wiring, order, layouts, travelling, ranks).items()):
            defects.extend(_race(wiring, layouts[rank], *race) for race in sorted(races))
    return defects


def _batches(ranks: list[int], width: dict[int, int]) -> Iterator[frozenset[int]]:
    batch: list[int] = []
    for rank in ranks:
        if batch and sum(width[r] for r in batch) + width[rank] > _COLUMNS:
            yield frozenset(batch)
            batch = []
        batch.append(rank)
    if batch:
        yield frozenset(batch)


def _shared_columns(wiring: Wiring, ranks: frozenset[int]) -> tuple[list[int], int]:
    column: list[int] = []
    columns = 0
    for rank, _ in wiring.blocks:
        column.append(columns if rank in ranks else -1)
        columns += rank in ranks
    return column, columns


def _ticks(wiring: Wiring, node: int) -> tuple[int, int]:
    """Return the ticks of its threadblock when a step has read its source, and has finished."""
    position = node - wiring.first[wiring.block_of[node]]
    return 2 * position + 1, 2 * position + 2


class _Clocks:
    """Clocks of the steps that finish before each step, by order and dependences in the rank."""

    def __init__(self, wiring: Wiring, column: Sequence[int], width: Sequence[int]) -> None:
        self.wiring = wiring
        self.column = column
        self.now = [np.zeros(w, dtype=np.int32) for w in width]
        self.saved: dict[int, Clock] = {}
        self.waiting: dict[int, int] = {}
        for awaited in wiring.waits_for:
            if awaited >= 0:
                self.waiting[awaited] = self.waiting.get(awaited, 0) + 1

    def begin(self, node: int) -> tuple[Clock, Clock]:
        """Return the clocks before `node` reads its source, and before it writes."""
        clock = self.now[self.wiring.block_of[node]]
        awaited = self.wiring.waits_for[node]
        if awaited >= 0:
            np.maximum(clock, self.saved[awaited], out=clock)
            self.waiting[awaited] -= 1
            if not self.waiting[awaited]:
                del self.saved[awaited]
        return clock, clock

    def finish(self, node: int) -> None:
        """Record that `node` has finished."""
        block = self.wiring.block_of[node]
        clock = self.now[block]
        if self.column[block] >= 0:
            clock[self.column[block]] = _ticks(self.wiring, node)[1]
        if node in self.waiting:
            self.saved[node] = clock.copy()


class _TravellingClocks(_Clocks):
    """`_Clocks` with the order that messages add between ranks."""

    def __init__(self, wiring: Wiring, column: Sequence[int], width: Sequence[int]) -> None:
        super().__init__(wiring, column, width)
        self.message: dict[int, tuple[Clock, Clock]] = {}

    def begin(self, node: int) -> tuple[Clock, Clock]:
        """Return the clocks as `_Clocks` does; a write also follows the start of the message."""
        clock, after_message = super().begin(node)
        source = self.wiring.source[node]
        if source >= 0:
            after_message = np.maximum(clock, self.message[source][0])
        if self.wiring.steps[node].type in SENDING:
            self.message[node] = (after_message.copy(), after_message)
        return clock, after_message

    def finish(self, node: int) -> None:
        """Merge the clock of the received message, and store the clock of the sent message."""
        source = self.wiring.source[node]
        if source >= 0:
            clock = self.now[self.wiring.block_of[node]]
            np.maximum(clock, self.message.pop(source)[1], out=clock)
        super().finish(node)
        if self.wiring.steps[node].type in SENDING:
            block = self.wiring.block_of[node]
            sent = self.now[block].copy()
            if self.column[block] >= 0:
                sent[self.column[block]] = _ticks(self.wiring, node)[0]
            self.message[node] = (self.message[node][0], sent)


def _scan(
    wiring: Wiring,
    order: Sequence[int],
    layouts: Sequence[Layout],
    clocks: _Clocks,
    ranks: frozenset[int],
) -> dict[int, list[tuple[int, int, int]]]:
    """Return the races on `ranks` under `clocks`: earlier step, later step, address."""
    histories = {rank: _History() for rank in sorted(ranks)}
    for node in order:
        before_read, before_write = clocks.begin(node)
        block = wiring.block_of[node]
        rank = wiring.blocks[block][0]
        if rank in ranks:
            step, layout = wiring.steps[node], layouts[rank]
            read_tick, write_tick = _ticks(wiring, node)
            reading, writing = _Access(block, read_tick, node), _Access(block, write_tick, node)
            history, column = histories[rank], clocks.column
            source, target = layout.address(step.src), layout.address(step.dst)
            # A copy onto itself, the in-place form of a copy, changes nothing for its readers.
            onto_itself = step.type is StepType.COPY and source == target
            if step.type in READS_SRC:
                for address in range(source, source + step.count):
                    history.read(address, reading, before_read, column)
            if step.type in WRITES_DST and not onto_itself:
                for address in range(target, target + step.count):
                    history.write(address, writing, before_write, column)
        clocks.finish(node)
    return {rank: list(h.races.values()) for rank, h in histories.items() if h.races}


def _race(wiring: Wiring, layout: Layout, earlier: int, later: int, address: int) -> Defect:
    rank, threadblock, step = wiring.place(later)
    return Defect(
        DefectKind.RACE,
        rank,
        threadblock,
        step,
        f"{_use(wiring, layout, later, address)} and {_use(wiring, layout, earlier, address)}; "
        "nothing orders the two",
    )


def _use(wiring: Wiring, layout: Layout, node: int, address: int) -> str:
    step = wiring.steps[node]
    target = layout.address(step.dst)
    writes = step.type in WRITES_DST and target <= address < target + step.count
    ref = step.dst if writes else step.src
    verb = "writes" if writes else "reads"
    chunk = f"{ref.buffer}[{ref.offset + address - layout.address(ref)}]"
    _, threadblock, number = wiring.place(node)
    return f"threadblock {threadblock} step {number} ({step.type}) {verb} {chunk}"
