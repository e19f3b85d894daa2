"""One run of a schedule that shows what every chunk holds: each contribution, counted once.

Contents are numbers. The first numbers stand for the input chunks of the ranks; every sum is a new
number, with its operands, its input chunk and its set of ranks as a row of bits. Steps of one wave
do not wait for each other and, in a schedule without races, touch no common chunk that one of them
writes, so a wave is executed at once, and one run shows the result of every interleaving. A sum of
different input chunks, or one that counts a contribution twice, is wrong and stays wrong, since
nothing is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Buffer, StepType
from synthesizer.ir.contents import Sum, input_chunks, postcondition
from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.step_table import (
    BUFFERS,
    Flags,
    Ints,
    Memory,
    StepTable,
    ranges,
    starts,
    units,
)
from synthesizer.prove.waves import Waves

Bits = NDArray[np.uint64]

NOTHING = -1
"""The content of a chunk that nothing has written."""


class Values:
    """The contents so far, by number: what each is made of, its input chunk and set of ranks."""

    def __init__(self, owner: Ints, chunk: Ints, ranks: int, made: int) -> None:
        """Start with a number per input chunk: its rank and its place in the rank's buffer."""
        self.inputs = len(owner)
        self.undefined = self.inputs
        """The number of what is read where nothing was written."""
        self.count = self.inputs + 1
        self._words = -(-ranks // 64)
        room = made + 1
        self._owner = owner
        self.chunk = np.concatenate((chunk, np.zeros(room, dtype=np.int64)))
        self.step = np.full(self.inputs + room, NOTHING)
        """The step that made each content; -1 for inputs."""
        self._bits = np.zeros((room, self._words), dtype=np.uint64)
        self.operands = np.full((room, 2), NOTHING)
        """Of all numbers but inputs: both summands, or the content that arrived."""
        self.wrong = np.zeros(self.inputs + room, dtype=bool)
        self.wrong[self.undefined] = True

    def add(self, left: Ints, right: Ints, step: Ints) -> Ints:
        """Return new numbers for the sums of pairs, which steps make."""
        left_bits, right_bits = self.bits(left), self.bits(right)
        unlike = (self.chunk[left] != self.chunk[right]) | (left_bits & right_bits).any(axis=1)
        new = self._made(left, right, step)
        self._bits[new - self.inputs] = left_bits | right_bits
        self.wrong[new] = unlike | self.wrong[left] | self.wrong[right]
        return new

    def arrive(self, sent: Ints, step: Ints) -> Ints:
        """Return new numbers for contents that steps receive."""
        new = self._made(sent, np.full(len(sent), NOTHING), step)
        self._bits[new - self.inputs] = self.bits(sent)
        self.wrong[new] = self.wrong[sent]
        return new

    def _made(self, left: Ints, right: Ints, step: Ints) -> Ints:
        new = np.arange(self.count, self.count + len(left))
        self.count += len(left)
        self.chunk[new], self.step[new] = self.chunk[left], step
        self.operands[new - self.inputs] = np.stack((left, right), axis=1)
        return new

    def input_chunks(self) -> list[tuple[int, int]]:
        """Return rank and chunk of each input chunk, by number."""
        return list(zip(self._owner.tolist(), self.chunk.tolist(), strict=False))

    def bits(self, contents: Ints) -> Bits:
        """Return the set of ranks of each content, as rows."""
        found = np.zeros((len(contents), self._words), dtype=np.uint64)
        single = contents < self.inputs
        owner = self._owner[contents[single]]
        found[np.flatnonzero(single), owner // 64] = np.uint64(1) << (owner % 64).astype(np.uint64)
        found[~single] = self._bits[contents[~single] - self.inputs]
        return found

    def sums(self, contents: Ints) -> list[Sum]:
        """Return contents that are not wrong as sums."""
        masks = (int.from_bytes(row.tobytes(), "little") for row in self.bits(contents))
        return list(map(Sum, self.chunk[contents].tolist(), masks))

    def unlike(self, contents: Ints, wanted: Sequence[Sum]) -> list[int]:
        """Return the places at which contents differ from the wanted sums."""
        chunks = np.fromiter((total.chunk for total in wanted), dtype=np.int64)
        rows = b"".join([total.ranks.to_bytes(self._words * 8, "little") for total in wanted])
        bits = np.frombuffer(rows, dtype="<u8").reshape(len(wanted), self._words)
        known = np.where(contents == NOTHING, self.undefined, contents)
        same = (self.chunk[known] == chunks) & (self.bits(known) == bits).all(axis=1)
        return np.flatnonzero(~same | self.wrong[known]).tolist()

    def describe(self, content: int) -> str:
        """Return what a chunk holds, or why that is wrong."""
        if content in {NOTHING, self.undefined}:
            return "nothing" if content == NOTHING else "data that nothing has written"
        if not self.wrong[content]:
            (total,) = self.sums(np.array([content]))
            return f"chunk {total.chunk} of rank {_ranks(total.ranks)}"
        left, right = self.operands[content - self.inputs].tolist()
        for operand in (left, right):
            if self.wrong[operand]:
                return self.describe(operand)
        first, second = self.sums(np.array([left, right]))
        if first.chunk != second.chunk:
            return f"a sum of input chunks {first.chunk} and {second.chunk}"
        twice = _ranks(first.ranks & second.ranks)
        return (
            f"chunk {first.chunk} of rank {twice} more than once: "
            f"{self.describe(left)} plus {self.describe(right)}"
        )


def _ranks(mask: int) -> str:
    """Return the ranks of a bit set with runs shortened: 0-3,7."""
    ranks = [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@dataclass(frozen=True, slots=True)
class Units:
    """Single chunks that steps move, by wave."""

    step: Ints
    place: Ints
    """Place of the chunk in its step."""
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
    def adds(self) -> Flags:
        """Units that make a sum."""
        return (self.receives & self.reads) | self.reduces


def _units(table: StepTable, waves: Waves, memory: Memory) -> Units:
    order = waves.order[~table.are(StepType.NOP)[waves.order]]
    step, place = units(table, order)
    first_unit = np.full(table.steps + 1, 0)
    first_unit[order] = starts(table.count[order])[:-1]
    wave_of = np.empty(table.steps, dtype=np.int64)
    wave_of[waves.order] = np.repeat(np.arange(len(waves.first) - 1), np.diff(waves.first))
    return Units(
        step=step,
        place=place,
        receives=table.receives[step],
        reads=table.reads[step],
        reduces=table.are(StepType.REDUCE)[step],
        writes=table.writes[step],
        source=first_unit[waves.source[step]] + place,
        src=memory.source[step] + place,
        dst=memory.target[step] + place,
        first=np.searchsorted(wave_of[step], np.arange(len(waves.first))),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of a schedule has shown."""

    values: Values
    moved: Units
    data: Ints
    """The content that each unit moves, or has made."""
    cells: Ints
    """The content of each address at the end."""
    unwritten: list[tuple[Ints, bool]]
    """Units that read what nothing has written: at their destination, or their source."""


def run(
    algorithm: Algorithm, table: StepTable, waves: Waves, memory: Memory, *, arrivals: bool = False
) -> Run:
    """Run a schedule without races; with `arrivals` each received chunk is a content of its own."""
    moved = _units(table, waves, memory)
    made = int(moved.adds.sum()) + (int(moved.receives.sum()) if arrivals else 0)
    cells, values = _initial(algorithm, memory, made)
    data = np.full(len(moved.src), NOTHING)
    unwritten: list[tuple[Ints, bool]] = []
    for wave in range(len(moved.first) - 1):
        now = np.arange(moved.first[wave], moved.first[wave + 1])
        receiving = now[moved.receives[now]]
        sent = data[moved.source[receiving]]
        data[receiving] = values.arrive(sent, moved.step[receiving]) if arrivals else sent
        for reading, address, at_destination in (
            (now[moved.reads[now]], moved.src, False),
            (now[moved.reduces[now]], moved.dst, True),
        ):
            local = cells[address[reading]]
            missing = local == NOTHING
            if missing.any():
                unwritten.append((reading[missing], at_destination))
                local[missing] = values.undefined
            adds = data[reading] != NOTHING
            if adds.any():
                adding = reading[adds]
                local[adds] = values.add(local[adds], data[adding], moved.step[adding])
            data[reading] = local
        writing = now[moved.writes[now]]
        cells[moved.dst[writing]] = data[writing]
    return Run(values, moved, data, cells, unwritten)


def _initial(algorithm: Algorithm, memory: Memory, made: int) -> tuple[Ints, Values]:
    cells = np.full(memory.cells, NOTHING)
    sizes = [
        layout.chunks[Buffer.INPUT]
        if algorithm.collective is Collective.CUSTOM
        else input_chunks(
            algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root
        )
        for rank, layout in enumerate(memory.layouts)
    ]
    chunks = np.array(sizes)
    first = memory.base + np.array([layout.first[Buffer.INPUT] for layout in memory.layouts])
    at = ranges(first, chunks)
    cells[at] = np.arange(len(at))
    owner = np.repeat(np.arange(algorithm.ranks), chunks)
    return cells, Values(owner, ranges(np.zeros_like(chunks), chunks), algorithm.ranks, made)


def unwritten_defects(table: StepTable, done: Run) -> Iterator[Defect]:
    """Yield the steps that read what nothing has written."""
    for found, at_destination in done.unwritten:
        buffers = table.dst_buffer if at_destination else table.src_buffer
        offsets = table.dst_offset if at_destination else table.src_offset
        _, first = np.unique(done.moved.step[found], return_index=True)
        for unit in found[np.sort(first)].tolist():
            step = int(done.moved.step[unit])
            chunk = f"{BUFFERS[buffers[step]]}[{offsets[step] + done.moved.place[unit]}]"
            yield Defect(
                DefectKind.UNINITIALISED,
                *table.place(step),
                f"{table.type_of(step)} reads {chunk}, which holds nothing at that time",
            )


def result_defects(algorithm: Algorithm, memory: Memory, done: Run) -> Iterator[Defect]:
    """Yield the result chunks whose contents differ from the post-condition."""
    custom = algorithm.collective is Collective.CUSTOM
    if custom and not any(map(any, algorithm.results)):
        yield Defect(
            DefectKind.NO_POSTCONDITION,
            None,
            None,
            None,
            "the operation is custom and no result is stated: "
            "only structure, deadlocks, races and uninitialised reads were checked",
        )
        return
    for rank, layout in enumerate(memory.layouts):
        stated = algorithm.results[rank] if custom else _postcondition(algorithm, rank)
        wanted = [(chunk, total) for chunk, total in enumerate(stated) if total is not None]
        first = memory.base[rank] + layout.first[Buffer.OUTPUT]
        found = done.cells[first + np.array([chunk for chunk, _ in wanted], dtype=np.int64)]
        for number in done.values.unlike(found, [total for _, total in wanted]):
            chunk, right = wanted[number]
            yield Defect(
                DefectKind.WRONG_RESULT,
                rank,
                None,
                None,
                f"result chunk {chunk} holds {done.values.describe(int(found[number]))}, must hold "
                f"chunk {right.chunk} of rank {_ranks(right.ranks)}",
            )


def _postcondition(algorithm: Algorithm, rank: int) -> Sequence[Sum]:
    return postcondition(
        algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root
    )
