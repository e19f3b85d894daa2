"""Vectorised proof: no data races by the order within each rank, and exact contents at the end.

Two accesses of a chunk, one of them a write, must be ordered by program order and dependences. As
in `synthesizer.prove.races` (which also follows messages, and names the races) it is enough
to order each access after the write before it, and each write after the reads since the write
before it; this orders all pairs.

Contents are numbers. The first numbers stand for the input chunks of the ranks; every addition
creates a new number, with its chunk and its set of ranks as a row of bits. Steps of one wave do not
wait for each other and, in a schedule without races, touch no common chunk that one of them writes,
so a wave is executed at once. An unwritten operand, a sum of different chunks or a repeated
contribution ends the run, and `synthesizer.prove.verifier` names the defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, StepType
from synthesizer.ir.contents import Sum, initial_contents, postcondition
from synthesizer.prove.step_table import Flags, Ints, StepTable, starts
from synthesizer.prove.table_structure import Places
from synthesizer.prove.waves import Waves, ranges

_CLOCK_ENTRIES = 1 << 24
"""Most entries of saved clocks at once, few enough for the processor's caches; further ranks are
checked in further batches."""


def ordered_within_ranks(table: StepTable, waves: Waves, places: Iterable[Places]) -> bool:
    """Return whether all conflicting accesses are ordered, in every buffer layout of `places`."""
    when = np.empty(table.steps, dtype=np.int64)
    when[waves.order] = np.arange(table.steps)
    pairs = np.sort(np.concatenate([_conflicts(table, waves, when, memory) for memory in places]))
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
    later, earlier = waves.order[pairs // table.steps], pairs % table.steps
    return all(
        _clocks_order(table, waves, (earlier, later), ranks)
        for ranks in _batches(table, waves.waits_for)
    )


def units(table: StepTable, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the single chunks of the chosen steps: the step of each, and its place in the step."""
    counts = table.count[chosen]
    return np.repeat(chosen, counts), ranges(np.zeros(len(chosen), dtype=np.int64), counts)


def _conflicts(table: StepTable, waves: Waves, when: Ints, places: Places) -> Ints:
    """Return the pairs of steps to order, as position of the later * number of steps + the earlier.

    A pair is one number because numbers sort several times as fast as rows.
    """
    source = places.addresses(table.rank, table.src_buffer, table.src_offset)
    target = places.addresses(table.rank, table.dst_buffer, table.dst_offset)
    # A copy onto itself, the in-place form of a copy, changes nothing for its readers.
    onto_itself = table.is_one_of(frozenset({StepType.COPY})) & (source == target)
    reader, place = units(table, np.flatnonzero(table.reads))
    writer, position = units(table, np.flatnonzero(table.writes & ~onto_itself))
    reads = ((source[reader] + place) * table.steps + when[reader]) * 2
    accesses = np.sort(
        np.concatenate((reads, ((target[writer] + position) * table.steps + when[writer]) * 2 + 1))
    )
    writes, accesses = accesses % 2 == 1, accesses // 2
    node, address = waves.order[accesses % table.steps], accesses // table.steps
    index = np.arange(len(node))
    last_write = np.full(len(node), -1)
    last_write[1:] = np.maximum.accumulate(np.where(writes, index, -1))[:-1]
    after = np.flatnonzero(last_write >= 0)
    next_write = np.minimum.accumulate(np.where(writes, index, len(node))[::-1])[::-1]
    before = np.flatnonzero(~writes & (next_write < len(node)))
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


def _clocks_order(
    table: StepTable, waves: Waves, pairs: tuple[Ints, Ints], ranks: tuple[int, int]
) -> bool:
    """Return whether clocks order all pairs on a range of ranks.

    `pairs` are earlier and later steps, in the order of the later steps; `ranks` are the first rank
    and the rank after the last.
    """
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
        if (seen <= table.position[earlier]).any():
            return False
        clock[np.arange(len(nodes)), column[nodes]] = table.position[nodes] + 1
        batch.now[block] = clock
        keep = np.flatnonzero(batch.saved_at[nodes] >= 0)
        batch.saved[batch.saved_at[nodes[keep]]] = clock[keep]
    return True


Bits = NDArray[np.uint64]

_NOTHING = -1
_MAX_BITS_BYTES = 8 << 30
"""Most memory for the sets of ranks of all sums."""


def gives_result(
    algorithm: Algorithm, table: StepTable, waves: Waves, places: Sequence[Places]
) -> bool:
    """Return whether the result is correct in every buffer layout; no steps may race."""
    if algorithm.collective is Collective.CUSTOM:
        return False
    contents = []
    for memory in places:
        run = _run(algorithm, table, waves, memory)
        if run is None:
            return False
        contents.append(run)
    for rank, wanted in enumerate(_postconditions(algorithm)):
        for (cells, sums), memory in zip(contents, places, strict=True):
            base = memory.base[rank] + memory.layouts[rank].output_base
            if not sums.are(cells[base : base + len(wanted)], wanted):
                return False
    return True


def _postconditions(algorithm: Algorithm) -> Iterator[tuple[Sum, ...]]:
    for rank in range(algorithm.ranks):
        yield postcondition(
            algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root
        )


class _Sums:
    """The contents so far: chunk and set of ranks of each number."""

    def __init__(self, owner: Ints, chunk: Ints, ranks: int, additions: int) -> None:
        """Start with a number per input chunk: its rank and its place."""
        self.words = -(-ranks // 64)
        self._owner = owner
        self._chunk = np.concatenate((chunk, np.zeros(additions, dtype=np.int64)))
        self._bits = np.zeros((additions, self.words), dtype=np.uint64)
        self._next = len(owner)

    def add(self, left: Ints, right: Ints) -> Ints | None:
        """Return new contents, the sums of pairs; None if a sum is wrong."""
        chunk = self._chunk[left]
        left_bits, right_bits = self.bits(left), self.bits(right)
        if (chunk != self._chunk[right]).any() or (left_bits & right_bits).any():
            return None
        new = np.arange(self._next, self._next + len(left))
        self._next += len(left)
        self._chunk[new] = chunk
        self._bits[new - len(self._owner)] = left_bits | right_bits
        return new

    def bits(self, contents: Ints) -> Bits:
        """Return the set of ranks of each content, as rows."""
        found = np.zeros((len(contents), self.words), dtype=np.uint64)
        single = contents < len(self._owner)
        owner = self._owner[contents[single]]
        found[np.flatnonzero(single), owner // 64] = np.uint64(1) << (owner % 64).astype(np.uint64)
        found[~single] = self._bits[contents[~single] - len(self._owner)]
        return found

    def are(self, contents: Ints, wanted: Sequence[Sum]) -> bool:
        """Return whether contents are exactly the wanted sums."""
        if len(contents) != len(wanted) or (contents == _NOTHING).any():
            return False
        chunks = np.fromiter((total.chunk for total in wanted), dtype=np.int64)
        rows = b"".join([total.ranks.to_bytes(self.words * 8, "little") for total in wanted])
        bits = np.frombuffer(rows, dtype="<u8").reshape(len(wanted), self.words)
        same = (self._chunk[contents] == chunks).all() and (self.bits(contents) == bits).all()
        return bool(same)


@dataclass(frozen=True, slots=True)
class _Units:
    """Single chunks that steps move, by wave."""

    receives: Flags
    reads: Flags
    reduces: Flags
    writes: Flags
    source: Ints
    """Unit of the message that this unit receives."""
    src: Ints
    dst: Ints
    first: Ints
    """Start of each wave, then the number of units."""

    @property
    def additions(self) -> int:
        """Number of additions."""
        return int((self.receives & self.reads).sum() + self.reduces.sum())


def _units(table: StepTable, waves: Waves, places: Places) -> _Units:
    order = waves.order[~table.is_one_of(frozenset({StepType.NOP}))[waves.order]]
    node, place = units(table, order)
    first_unit = np.full(table.steps + 1, 0)
    first_unit[order] = starts(table.count[order])[:-1]
    wave_of = np.empty(table.steps, dtype=np.int64)
    wave_of[waves.order] = np.repeat(np.arange(len(waves.first) - 1), np.diff(waves.first))
    sources = places.addresses(table.rank, table.src_buffer, table.src_offset)
    targets = places.addresses(table.rank, table.dst_buffer, table.dst_offset)
    return _Units(
        receives=table.receives[node],
        reads=table.reads[node],
        reduces=table.is_one_of(frozenset({StepType.REDUCE}))[node],
        writes=table.writes[node],
        source=first_unit[waves.source[node]] + place,
        src=sources[node] + place,
        dst=targets[node] + place,
        first=np.searchsorted(wave_of[node], np.arange(len(waves.first))),
    )


def _run(
    algorithm: Algorithm, table: StepTable, waves: Waves, places: Places
) -> tuple[Ints, _Sums] | None:
    """Return the contents of all memory after all steps; None if a step is not plainly correct."""
    moved = _units(table, waves, places)
    if moved.additions * algorithm.ranks // 8 > _MAX_BITS_BYTES:
        return None
    cells, sums = _initial(algorithm, places, moved.additions)
    data = np.full(len(moved.src), _NOTHING)
    for wave in range(len(moved.first) - 1):
        now = np.arange(moved.first[wave], moved.first[wave + 1])
        receiving = now[moved.receives[now]]
        data[receiving] = data[moved.source[receiving]]
        for reading, address in (
            (now[moved.reads[now]], moved.src),
            (now[moved.reduces[now]], moved.dst),
        ):
            local = cells[address[reading]]
            if (local == _NOTHING).any():
                return None
            adds = data[reading] != _NOTHING
            total = sums.add(data[reading[adds]], local[adds])
            if total is None:
                return None
            local[adds] = total
            data[reading] = local
        writing = now[moved.writes[now]]
        cells[moved.dst[writing]] = data[writing]
    return cells, sums


def _initial(algorithm: Algorithm, places: Places, additions: int) -> tuple[Ints, _Sums]:
    cells = np.full(places.cells, _NOTHING)
    owners, chunks, count = [], [], 0
    for rank, lay in enumerate(places.layouts):
        contents = initial_contents(
            algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root
        )
        base = places.base[rank] + lay.input_base
        cells[base : base + len(contents)] = np.arange(count, count + len(contents))
        count += len(contents)
        owners.append(np.full(len(contents), rank))
        chunks.append(np.fromiter((content.chunk for content in contents), dtype=np.int64))
    return cells, _Sums(np.concatenate(owners), np.concatenate(chunks), algorithm.ranks, additions)
