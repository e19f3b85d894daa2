"""Data races: two steps of a rank access a chunk, one of them writes, and nothing orders them.

Two steps are ordered if a chain of program order, dependences and messages leads from the end of
one to the start of the other. FIFO slots imply no order: a runtime may have more of them than a
proof assumes. It is enough to order each access after the write before it, and each write after the
reads since the write before it; this orders all pairs.

Nearly all schedules order their steps within the rank. So clocks of all ranks at once, by program
order and dependences alone, come first (`unordered_ranks`). Only ranks where they do not suffice
get clocks that follow messages, step by step (`find_races`): vector clocks with an entry per
threadblock, and for each chunk its last write and the reads since (FastTrack, Flanagan and Freund,
PLDI 2009).

Messages stream: a fused step forwards the first elements before the last have arrived. The output
of a chain of fused steps therefore follows only the *start* of the step that sent the data, and a
source operand may be read before the message arrives. A fused step may also send before it stores
(MSCCL src/collectives/device/prims_ll.h), so its message does not imply that its own destination is
written. Each step therefore has two ticks, its read and its write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.algorithm import StepType
from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.step_table import BUFFERS, Flags, Ints, Memory, StepTable, starts, units
from synthesizer.prove.waves import Waves

Clock = NDArray[np.int32]

_CLOCK_ENTRIES = 1 << 24
"""Most entries of saved clocks at once, few enough for the processor's caches; further ranks are
checked in further batches."""
_COLUMNS = 512
"""Most threadblocks whose order is followed through messages at once, which bounds the memory of
saved clocks."""


def _written(table: StepTable, memory: Memory) -> Flags:
    """Return the steps that change their destination.

    A copy onto itself, the in-place form of a copy, changes nothing for its readers.
    """
    onto_itself = table.are(StepType.COPY) & (memory.source == memory.target)
    return np.asarray(table.writes & ~onto_itself)


def unordered_ranks(table: StepTable, waves: Waves, memories: Sequence[Memory]) -> set[int]:
    """Return the ranks with conflicting accesses that the rank's own order does not order.

    `memories` are the buffer layouts in which accesses may conflict.
    """
    when = np.empty(table.steps, dtype=np.int64)
    when[waves.order] = np.arange(table.steps)
    pairs = np.unique(np.concatenate([_conflicts(table, waves, when, m) for m in memories]))
    later, earlier = waves.order[pairs // table.steps], pairs % table.steps
    found: set[int] = set()
    for ranks in _batches(table, waves.waits_for):
        found.update(_unordered(table, waves, (earlier, later), ranks))
    return found


def _conflicts(table: StepTable, waves: Waves, when: Ints, memory: Memory) -> Ints:
    """Return the pairs of steps to order, as position of the later * number of steps + the earlier.

    A pair is one number because numbers sort several times as fast as rows.
    """
    reader, place = units(table, np.flatnonzero(table.reads))
    writer, position = units(table, np.flatnonzero(_written(table, memory)))
    reads = ((memory.source[reader] + place) * table.steps + when[reader]) * 2
    writes = ((memory.target[writer] + position) * table.steps + when[writer]) * 2 + 1
    accesses = np.sort(np.concatenate((reads, writes)))
    is_write, accesses = accesses % 2 == 1, accesses // 2
    node, address = waves.order[accesses % table.steps], accesses // table.steps
    index = np.arange(len(node))
    last_write = np.full(len(node), -1)
    last_write[1:] = np.maximum.accumulate(np.where(is_write, index, -1))[:-1]
    after = np.flatnonzero(last_write >= 0)
    next_write = np.minimum.accumulate(np.where(is_write, index, len(node))[::-1])[::-1]
    before = np.flatnonzero(~is_write & (next_write < len(node)))
    earlier = np.concatenate((last_write[after], before))
    later = np.concatenate((after, next_write[before]))
    same_address = address[earlier] == address[later]
    earlier, later = node[earlier[same_address]], node[later[same_address]]
    apart = table.block[earlier] != table.block[later]
    return np.asarray(when[later[apart]] * table.steps + earlier[apart])


def _batches(table: StepTable, waits_for: Ints) -> list[tuple[int, int]]:
    """Return ranges of ranks whose saved clocks fit in memory together."""
    ranks = len(table.first_block) - 1
    awaited = np.unique(waits_for[waits_for >= 0])
    rows = np.bincount(table.rank[awaited], minlength=ranks)
    entries = rows * int(np.diff(table.first_block).max(initial=1))
    batches, start, held = [], 0, 0
    for rank, size in enumerate(entries.tolist()):
        if held and held + size > _CLOCK_ENTRIES:
            batches.append((start, rank))
            start, held = rank, 0
        held += size
    return [*batches, (start, ranks)]


@dataclass(frozen=True, slots=True)
class _Batch:
    """A range of ranks: its steps by wave, its pairs, and vector clocks within the ranks.

    A clock counts the finished steps of each threadblock of a rank.
    """

    order: Ints
    first: Ints
    """Start of each wave in `order`, then the number of steps."""
    earlier: Ints
    later: Ints
    """Later step of each pair, as its place in `order`."""
    first_pair: Ints
    """Start of the pairs of each wave, then the number of pairs."""
    block: Ints
    """Threadblock of each place in `order`, counted from the first of the batch."""
    saved_at: Ints
    """Row of `saved` with the clock after a step, -1 if no step waits for it."""
    now: NDArray[np.int32]
    """Clocks after the last step of every threadblock."""
    saved: NDArray[np.int32]
    """Clocks after the steps that others wait for."""


def _batch(
    table: StepTable, waves: Waves, pairs: tuple[Ints, Ints], ranks: tuple[int, int]
) -> _Batch:
    rank = table.rank[waves.order]
    mine = (rank >= ranks[0]) & (rank < ranks[1])
    order = waves.order[mine]
    first = starts(mine.astype(np.int64))[waves.first]
    place = np.empty(table.steps, dtype=np.int64)
    place[order] = np.arange(len(order))
    rank = table.rank[pairs[1]]
    chosen = (rank >= ranks[0]) & (rank < ranks[1])
    later = place[pairs[1][chosen]]
    awaited = np.unique(waves.waits_for[order])
    awaited = awaited[awaited >= 0]
    saved_at = np.full(table.steps + 1, -1)
    saved_at[awaited] = np.arange(len(awaited))
    width = int(np.diff(table.first_block).max(initial=1))
    first_block, end = table.first_block[ranks[0]], table.first_block[ranks[1]]
    return _Batch(
        order=order,
        first=first,
        earlier=pairs[0][chosen],
        later=later,
        first_pair=np.searchsorted(later, first),
        block=table.block[order] - first_block,
        saved_at=saved_at,
        now=np.zeros((int(end - first_block), width), dtype=np.int32),
        saved=np.zeros((len(awaited), width), dtype=np.int32),
    )


def _unordered(
    table: StepTable, waves: Waves, pairs: tuple[Ints, Ints], ranks: tuple[int, int]
) -> set[int]:
    """Return those of a range of ranks with pairs that clocks do not order.

    `pairs` are earlier and later steps, in the order of the later steps; `ranks` are the first rank
    and the rank after the last.
    """
    found: set[int] = set()
    batch = _batch(table, waves, pairs, ranks)
    column = table.block - table.first_block[table.rank]
    for wave in range(len(batch.first) - 1):
        start, end = batch.first[wave], batch.first[wave + 1]
        nodes, block = batch.order[start:end], batch.block[start:end]
        clock = batch.now[block]
        before = batch.saved_at[waves.waits_for[nodes]]
        waits = np.flatnonzero(before >= 0)
        clock[waits] = np.maximum(clock[waits], batch.saved[before[waits]])
        checked = slice(batch.first_pair[wave], batch.first_pair[wave + 1])
        earlier = batch.earlier[checked]
        seen = clock[batch.later[checked] - start, column[earlier]]
        found.update(table.rank[earlier[seen <= table.position[earlier]]].tolist())
        clock[np.arange(len(nodes)), column[nodes]] = table.position[nodes] + 1
        batch.now[block] = clock
        keep = np.flatnonzero(batch.saved_at[nodes] >= 0)
        batch.saved[batch.saved_at[nodes[keep]]] = clock[keep]
    return found


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


def find_races(
    table: StepTable, waves: Waves, memory: Memory, suspects: set[int]
) -> Iterator[Defect]:
    """Yield the pairs of steps that race, at most one per pair of threadblocks.

    `suspects` are the ranks whose own order does not order all accesses.
    """
    width = np.diff(table.first_block)
    for ranks in _columns_at_once(sorted(suspects), width):
        column = np.full(len(table.block_rank), -1)
        own = np.flatnonzero(np.isin(table.block_rank, ranks))
        column[own] = np.arange(len(own))
        clocks = _Clocks(table, waves, column.tolist())
        histories = _histories(table, waves, memory, clocks, ranks)
        for rank in ranks:
            for race in sorted(histories[rank].races.values()):
                yield _race(table, memory, *race)


def _columns_at_once(ranks: list[int], width: Ints) -> Iterator[list[int]]:
    batch: list[int] = []
    for rank in ranks:
        if batch and width[[*batch, rank]].sum() > _COLUMNS:
            yield batch
            batch = []
        batch.append(rank)
    if batch:
        yield batch


class _Clocks:
    """Clocks of the steps that finish before each step, through messages too."""

    def __init__(self, table: StepTable, waves: Waves, column: list[int]) -> None:
        self.column = column
        """Of each threadblock, its entry in the clocks; -1 if its order is not followed."""
        self._block, self._position = table.block.tolist(), table.position.tolist()
        self._source, self._waits_for = waves.source.tolist(), waves.waits_for.tolist()
        self._sends = table.sends.tolist()
        self._now: Clock = np.zeros((len(column), max(column) + 1), dtype=np.int32)
        self._saved: dict[int, Clock] = {}
        self._waiting = Counter(self._waits_for)
        self._message: dict[int, tuple[Clock, Clock]] = {}
        """Clocks at the start of a message, and when it is sent."""

    def ticks(self, step: int) -> tuple[int, int]:
        """Return the ticks of its threadblock when a step has read its source, and has finished."""
        return 2 * self._position[step] + 1, 2 * self._position[step] + 2

    def begin(self, step: int) -> tuple[Clock, Clock]:
        """Return the clocks before a step reads its source, and before it writes."""
        clock = self._now[self._block[step]]
        awaited, source = self._waits_for[step], self._source[step]
        if awaited >= 0:
            np.maximum(clock, self._saved[awaited], out=clock)
            self._waiting[awaited] -= 1
            if not self._waiting[awaited]:
                del self._saved[awaited]
        # A write also follows the start of the message.
        before_write = clock if source < 0 else np.maximum(clock, self._message[source][0])
        if self._sends[step]:
            self._message[step] = (before_write.copy(), before_write)
        return clock, before_write

    def finish(self, step: int) -> None:
        """Note that a step has finished, and its message is sent."""
        block, source = self._block[step], self._source[step]
        clock, column = self._now[block], self.column[block]
        if source >= 0:
            np.maximum(clock, self._message.pop(source)[1], out=clock)
        has_read, has_finished = self.ticks(step)
        if column >= 0:
            clock[column] = has_finished
        if self._waiting[step]:
            self._saved[step] = clock.copy()
        if self._sends[step]:
            sent = clock.copy()
            if column >= 0:
                sent[column] = has_read
            self._message[step] = (self._message[step][0], sent)


def _histories(
    table: StepTable, waves: Waves, memory: Memory, clocks: _Clocks, ranks: Sequence[int]
) -> dict[int, _History]:
    """Return what happened to the chunks of some ranks."""
    histories = {rank: _History() for rank in ranks}
    reads, writes = table.reads, _written(table, memory)
    for step in waves.order.tolist():
        before_read, before_write = clocks.begin(step)
        history = histories.get(int(table.rank[step]))
        if history is not None:
            block, count = int(table.block[step]), int(table.count[step])
            read_tick, write_tick = clocks.ticks(step)
            if reads[step]:
                first = int(memory.source[step])
                for address in range(first, first + count):
                    access = _Access(block, read_tick, step)
                    history.read(address, access, before_read, clocks.column)
            if writes[step]:
                first = int(memory.target[step])
                for address in range(first, first + count):
                    access = _Access(block, write_tick, step)
                    history.write(address, access, before_write, clocks.column)
        clocks.finish(step)
    return histories


def _race(table: StepTable, memory: Memory, earlier: int, later: int, address: int) -> Defect:
    uses = f"{_use(table, memory, later, address)} and {_use(table, memory, earlier, address)}"
    return Defect(DefectKind.RACE, *table.place(later), f"{uses}; nothing orders the two")


def _use(table: StepTable, memory: Memory, step: int, address: int) -> str:
    first = int(memory.target[step])
    writes = table.writes[step] and first <= address < first + table.count[step]
    buffer, offset = table.dst_buffer[step], int(table.dst_offset[step])
    if not writes:
        first = int(memory.source[step])
        buffer, offset = table.src_buffer[step], int(table.src_offset[step])
    chunk = f"{BUFFERS[buffer]}[{offset + address - first}]"
    _, threadblock, number = table.place(step)
    verb = "writes" if writes else "reads"
    return f"threadblock {threadblock} step {number} ({table.type_of(step)}) {verb} {chunk}"
