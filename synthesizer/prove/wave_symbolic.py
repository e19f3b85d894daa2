"""Vectorised symbolic execution: whether every chunk has its exact contents at the end.

Contents are numbers. The first numbers stand for the input chunks of the ranks; every addition
creates a new number, with its chunk and its set of ranks as a row of bits. Steps of one wave do not
wait for each other and, in a schedule without races, touch no common chunk that one of them writes,
so a wave is executed at once. An unwritten operand, a sum of different chunks or a repeated
contribution ends the run, and `synthesizer.prove.verifier` names the defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.algorithm import Algorithm, StepType
from synthesizer.ir.collectives import Collective, Sum, initial_contents, postcondition
from synthesizer.prove.step_table import Flags, Ints, StepTable, starts
from synthesizer.prove.table_structure import Places
from synthesizer.prove.wave_races import units
from synthesizer.prove.waves import Waves

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
