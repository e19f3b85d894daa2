"""`Program`: a schedule written chunk by chunk, in MSCCLang's sense (section 3).

A program is a sequence of `copy` and `reduce` statements over chunks of the ranks' buffers, with
sequential semantics; `synthesizer.lower.lowering` finds what may run in parallel. A program
never writes an input buffer, so by default it serves in place and out of place: in place, an input
chunk and the output chunk that it lies on are one location (`Program.location`), and hazards are
found on locations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.buffer_layout import first_addresses
from synthesizer.ir.contents import Sum
from tuccl.errors import ProgramError

Location = tuple[int, int]
"""Rank, and address in its memory (`synthesizer.ir.buffer_layout`)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` consecutive chunks of one rank's buffer."""

    rank: int
    buffer: Buffer
    offset: int
    count: int = 1

    def units(self) -> tuple[Chunk, ...]:
        """Return its single chunks."""
        if self.count == 1:
            return (self,)
        return tuple(Chunk(self.rank, self.buffer, self.offset + i, 1) for i in range(self.count))


@dataclass(frozen=True, slots=True)
class Statement:
    """A `copy` (operand is None) or a `reduce` (dst becomes operand + src)."""

    src: Chunk
    dst: Chunk
    operand: Chunk | None
    channel: int

    @property
    def remote(self) -> bool:
        """Whether data travels between ranks."""
        return self.src.rank != self.dst.rank


@dataclass
class Program:
    """Statements of one collective over `ranks` ranks, with their buffers.

    `chunks` is the granularity k: of a rank's part of the larger buffer if it has one (k * ranks in
    that buffer), else of the whole buffer.
    """

    collective: Collective
    ranks: int
    chunks: int
    root: int = 0
    in_place: bool = True
    out_of_place: bool = True
    statements: list[Statement] = field(default_factory=list)
    expected: dict[tuple[int, int], Sum] = field(default_factory=dict)
    """What output chunks of a custom operation must hold at the end, by rank and chunk."""
    _scratch: list[int] = field(default_factory=list)
    _first: Sequence[list[dict[Buffer, int]]] = ()
    """First addresses of each rank's buffers out of place, and in place."""

    def __post_init__(self) -> None:
        if self.ranks < 2 or self.chunks < 1:
            raise ProgramError(
                f"{self.collective}: {self.ranks} ranks with {self.chunks} chunks;"
                " a schedule needs at least 2 ranks and 1 chunk"
            )
        if not 0 <= self.root < self.ranks:
            raise ProgramError(
                f"{self.collective}: root {self.root} is not one of ranks 0 to {self.ranks - 1}"
            )
        self._scratch = [0] * self.ranks
        sizes = (self.input_chunks, self.output_chunks)
        self._first = tuple(
            [
                first_addresses(self.collective, rank, *sizes, in_place=in_place)
                for rank in range(self.ranks)
            ]
            for in_place in (False, True)
        )

    @property
    def chunks_per_loop(self) -> int:
        """Chunks in the larger buffer."""
        return self.chunks * self.collective.parts(self.ranks)

    @property
    def input_chunks(self) -> int:
        """Chunks in each rank's input buffer."""
        return self.chunks if self.collective.input_is_part else self.chunks_per_loop

    @property
    def output_chunks(self) -> int:
        """Chunks in each rank's output buffer."""
        return self.chunks if self.collective.output_is_part else self.chunks_per_loop

    def input(self, rank: int, offset: int, count: int = 1) -> Chunk:
        """Return chunks of the input buffer."""
        return self._inside(Chunk(rank, Buffer.INPUT, offset, count), self.input_chunks)

    def output(self, rank: int, offset: int, count: int = 1) -> Chunk:
        """Return chunks of the output buffer."""
        return self._inside(Chunk(rank, Buffer.OUTPUT, offset, count), self.output_chunks)

    def scratch(self, rank: int, count: int = 1) -> Chunk:
        """Return new scratch chunks."""
        offset = self._scratch[rank]
        self._scratch[rank] += count
        return Chunk(rank, Buffer.SCRATCH, offset, count)

    def copy(self, src: Chunk, dst: Chunk, channel: int = 0) -> Chunk:
        """Copy chunks, to another rank or within one; return `dst`."""
        return self._add(Statement(src, dst, None, channel))

    def reduce(
        self, src: Chunk, dst: Chunk, operand: Chunk | None = None, channel: int = 0
    ) -> Chunk:
        """Write the sum of `src` and `operand` (default: `dst`) to `dst`; return `dst`."""
        return self._add(Statement(src, dst, operand or dst, channel))

    def location(self, chunk: Chunk, *, in_place: bool) -> Location:
        """Return rank and address of the first chunk."""
        return chunk.rank, self._first[in_place][chunk.rank][chunk.buffer] + chunk.offset

    def is_self_copy(self, statement: Statement) -> bool:
        """Return whether a statement copies chunks onto themselves in place."""
        places = (self.location(c, in_place=self.in_place) for c in (statement.src, statement.dst))
        return statement.operand is None and len(set(places)) == 1

    def _inside(self, chunk: Chunk, limit: int) -> Chunk:
        if not 0 <= chunk.rank < self.ranks:
            raise ProgramError(f"{self.collective}: no rank {chunk.rank} among {self.ranks}")
        if chunk.offset < 0 or chunk.count < 1 or chunk.offset + chunk.count > limit:
            raise ProgramError(
                f"{self.collective}: chunks {chunk.offset} to {chunk.offset + chunk.count - 1} lie"
                f" outside buffer {chunk.buffer} of rank {chunk.rank}, which has {limit}"
            )
        return chunk

    def _add(self, statement: Statement) -> Chunk:
        src, dst, operand = statement.src, statement.dst, statement.operand
        if dst.buffer is Buffer.INPUT:
            raise ProgramError(f"{self.collective}: rank {dst.rank} would overwrite its input")
        if src.count != dst.count or (operand and operand.count != dst.count):
            raise ProgramError(f"{self.collective}: {src} and {dst} differ in length")
        if operand and operand.rank != dst.rank:
            raise ProgramError(f"{self.collective}: {operand} is not on rank {dst.rank}")
        if operand and operand != dst and not statement.remote:
            raise ProgramError(f"{self.collective}: a local reduction adds to its destination")
        self.statements.append(statement)
        return dst
