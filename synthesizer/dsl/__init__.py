"""A small language for schedules, in MSCCLang's sense (section 3 of its paper).

A schedule is a sequence of statements about chunks: `Schedule.chunk` names chunks of a rank's
buffer, `Reference.copy` and `Reference.reduce` move and add them on a channel, and
`Schedule.parallelize` runs statements in several instances. The result is a `Program`, which is
lowered and verified like any other (docs/guide/schedule-dsl.md shows how).

Statements have sequential semantics; lowering finds what may run in parallel. So a schedule is
written with ordinary loops, and the order matters only where data depends on it: messages are
ordered, aggregated and given channels by the data flow (`synthesizer.dsl.arrangement`).

A statement in N instances is N statements, each over 1/N of its data and on a channel of its own
(MSCCLang section 3.2): all chunks are divided by the least common multiple of the instance counts.
Statements with equal counts correspond instance by instance; if counts differ, lowering finds which
instance waits for which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import lcm

from lookup_tables.collective import Collective
from synthesizer.dsl.arrangement import Written, arranged
from synthesizer.dsl.writers import Versions, Writers, describe
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.contents import Sum, input_chunks, output_chunks
from synthesizer.ir.program import Chunk, Program, Statement
from tuccl.errors import ProgramError

INPUT = Buffer.INPUT
OUTPUT = Buffer.OUTPUT
SCRATCH = Buffer.SCRATCH


def in_instances(program: Program, instances: Sequence[int]) -> Program:
    """Return the program with statement i in `instances[i]` instances.

    Channels are renumbered without gaps, in the order of (channel, instance).
    """
    finer = lcm(*instances)
    if finer == 1:
        instanced = [(statement, 0) for statement in program.statements]
    else:
        instanced = [
            (_instance(statement, finer, number, count), number)
            for statement, count in zip(program.statements, instances, strict=True)
            for number in range(count)
        ]
    used = sorted({(statement.channel, number) for statement, number in instanced})
    channel = {key: i for i, key in enumerate(used)}
    expected = {
        (rank, chunk * finer + part): Sum(total.chunk * finer + part, total.ranks)
        for (rank, chunk), total in program.expected.items()
        for part in range(finer)
    }
    return replace(
        program,
        chunks=program.chunks * finer,
        expected=expected,
        statements=[
            _on_channel(statement, channel[statement.channel, number])
            for statement, number in instanced
        ],
    )


def _on_channel(statement: Statement, channel: int) -> Statement:
    return statement if statement.channel == channel else replace(statement, channel=channel)


def _instance(statement: Statement, finer: int, number: int, count: int) -> Statement:
    def cut(chunk: Chunk) -> Chunk:
        size = chunk.count * finer // count
        return replace(chunk, offset=chunk.offset * finer + number * size, count=size)

    operand = cut(statement.operand) if statement.operand else None
    return replace(statement, src=cut(statement.src), dst=cut(statement.dst), operand=operand)


@dataclass(frozen=True, slots=True)
class Reference:
    """Chunks of one rank's buffer, with the versions that they had when it was created."""

    schedule: Schedule = field(repr=False, compare=False)
    chunk: Chunk
    versions: Versions = field(repr=False)

    @property
    def rank(self) -> int:
        """The rank that owns the buffer."""
        return self.chunk.rank

    @property
    def buffer(self) -> Buffer:
        """Input, output or scratch."""
        return self.chunk.buffer

    @property
    def index(self) -> int:
        """Offset of the first chunk."""
        return self.chunk.offset

    @property
    def count(self) -> int:
        """Number of chunks."""
        return self.chunk.count

    def copy(
        self, rank: int, buffer: Buffer, index: int | None = None, channel: int | None = None
    ) -> Reference:
        """Copy the chunks to a buffer of any rank; return the copy.

        Args:
            rank: Destination rank.
            buffer: OUTPUT or SCRATCH.
            index: First chunk at the destination; None for unused scratch chunks.
            channel: Which of several connections between the same ranks to use; None: chosen by
                phase.

        Raises:
            ProgramError: The source was overwritten, the destination does not exist or is an
                input buffer, or an unrelated statement wrote it.
        """
        return self.schedule._copy(self, rank, buffer, index, channel)

    def reduce(
        self,
        addend: Reference,
        buffer: Buffer | None = None,
        index: int | None = None,
        channel: int | None = None,
    ) -> Reference:
        """Add `addend`, which may be on another rank; return the sum.

        Args:
            addend: The same number of chunks.
            buffer: Destination of the sum on this rank, instead of these chunks. An input buffer
                is never written, so a sum onto input chunks needs it.
            index: First chunk at the destination; None for unused scratch chunks.
            channel: As in `copy`.

        Raises:
            ProgramError: As in `copy`.
        """
        return self.schedule._reduce(self, addend, buffer, index, channel)


class Schedule:
    """A schedule under construction."""

    def __init__(
        self,
        collective: Collective,
        ranks: int,
        chunks: int = 1,
        root: int = 0,
        *,
        in_place: bool = True,
        out_of_place: bool = True,
    ) -> None:
        """Start a schedule without statements.

        Args:
            collective: The operation.
            ranks: Number of ranks.
            chunks: Chunks per rank's block (all_gather, reduce_scatter, alltoall) or per buffer
                (other operations).
            root: Root of broadcast and reduce.
            in_place: Whether callers may pass one buffer as input and output.
            out_of_place: Whether callers may pass two buffers.

        Raises:
            ProgramError: No such schedule can exist.
        """
        if not (in_place or out_of_place):
            raise ProgramError(f"{collective}: a schedule must work in place or out of place")
        self._traced = Program(collective, ranks, chunks, root, in_place, out_of_place)
        self._writers = Writers(self._traced)
        self._said: list[Written] = []
        self._current_instances = 1
        self._scratch_used = [0] * ranks

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self._traced.ranks

    @property
    def chunks(self) -> int:
        """Chunks per block or buffer, as given."""
        return self._traced.chunks

    @property
    def collective(self) -> Collective:
        """The operation."""
        return self._traced.collective

    def chunk(self, rank: int, buffer: Buffer, index: int, count: int = 1) -> Reference:
        """Return a reference to neighbouring chunks of a rank's buffer, in their current version.

        Raises:
            ProgramError: The chunks do not exist, or nothing has been written to them.
        """
        place = self._place(rank, buffer, index, count)
        return Reference(self, place, self._writers.versions(place))

    @contextmanager
    def parallelize(self, instances: int) -> Iterator[None]:
        """Run the statements of the block in several instances, each over its share of the data.

        Each instance has channels of its own. Nested blocks multiply.

        Raises:
            ProgramError: `instances` is less than 1.
        """
        if instances < 1:
            raise ProgramError(f"{self.collective}: {instances} instances; give at least one")
        outer = self._current_instances
        self._current_instances = outer * instances
        try:
            yield
        finally:
            self._current_instances = outer

    def expect(
        self, rank: int, index: int, *, chunk: int, of: Collection[int], count: int = 1
    ) -> None:
        """State the result of a custom operation, for the verifier to prove.

        Args:
            rank: Rank whose output is meant.
            index: First of its output chunks.
            chunk: First of the input chunks that they hold at the end.
            of: The ranks with these input chunks; of several ranks, their sum.
            count: Number of chunks.

        Raises:
            ProgramError: The operation is not custom, the chunks do not exist, or their result has
                been stated before.
        """
        if self.collective is not Collective.CUSTOM:
            raise ProgramError(
                f"{self.collective}: its result is known; state one for {Collective.CUSTOM} alone"
            )
        if not of or len(set(of)) < len(of):
            raise ProgramError(
                f"{self.collective}: a result of ranks {list(of)}; name one or more, each once"
            )
        outputs = self._place(rank, OUTPUT, index, count).units()
        for source in of:
            self._place(source, INPUT, chunk, count)
        for number, unit in enumerate(outputs):
            key = (unit.rank, unit.offset)
            if key in self._traced.expected:
                raise ProgramError(
                    f"{self.collective}: the result of {describe(unit)} is stated twice"
                )
            total = Sum(chunk + number, sum(1 << source for source in of))
            self._traced.expected[key] = total

    def program(self) -> Program:
        """Return the statements so far as a program for `synthesizer.lower.lowering.lower`.

        Raises:
            ProgramError: The schedule has no statements.
        """
        if not self._said:
            raise ProgramError(
                f"{self.collective}: the schedule is empty; copy or reduce some chunks"
            )
        statements, instances = arranged(self._traced, self._said)
        return in_instances(replace(self._traced, statements=list(statements)), instances)

    def _copy(
        self, source: Reference, rank: int, buffer: Buffer, index: int | None, channel: int | None
    ) -> Reference:
        target = self._place(rank, buffer, index, source.count)
        self._require_readable(source)
        self._traced.copy(source.chunk, target)
        return self._written(channel, target, source)

    def _reduce(
        self,
        own: Reference,
        addend: Reference,
        buffer: Buffer | None,
        index: int | None,
        channel: int | None,
    ) -> Reference:
        if buffer is None and index is not None:
            raise ProgramError(
                f"{self.collective}: index {index} without a buffer; give both, or neither for a"
                f" sum onto {describe(own.chunk)}"
            )
        if buffer is None and own.buffer is Buffer.INPUT:
            raise ProgramError(
                f"{self.collective}: {describe(own.chunk)} is the caller's and is never written;"
                " say where the sum goes, as in reduce(addend, OUTPUT, index)"
            )
        self._require_readable(own)
        self._require_readable(addend)
        if own.count != addend.count:
            raise ProgramError(
                f"{self.collective}: {describe(own.chunk)} and {describe(addend.chunk)}"
                " differ in length; reduce equally many chunks"
            )
        target = self._place(own.rank, buffer, index, own.count) if buffer else own.chunk
        if own.rank == addend.rank and target != own.chunk:
            own, addend = self._begun_at(target, own, addend, channel)
        self._traced.reduce(addend.chunk, target, own.chunk)
        return self._written(channel, target, addend, own)

    def _begun_at(
        self, target: Chunk, own: Reference, addend: Reference, channel: int | None
    ) -> tuple[Reference, Reference]:
        """Copy one summand of a local sum to its destination; return the summands.

        A local reduction adds to its destination. Where one summand already lies at the
        destination, as the rank's own input does in place, it must be the one to stay.
        """
        if self._writers.share(addend.chunk, target):
            own, addend = addend, own
        if self._writers.share(addend.chunk, target):
            raise ProgramError(
                f"{self.collective}: {describe(own.chunk)} and {describe(addend.chunk)} both"
                f" overlap {describe(target)}; put the sum elsewhere"
            )
        if own.chunk != target:
            own = self._copy(own, target.rank, target.buffer, target.offset, channel)
        return own, addend

    def _written(self, channel: int | None, target: Chunk, *read: Reference) -> Reference:
        try:
            if channel is not None and channel < 0:
                raise ProgramError(f"{self.collective}: channel {channel}; count them from 0")
            versions = self._writers.record(reference.versions for reference in read)
        except ProgramError:
            self._traced.statements.pop()
            raise
        self._said.append(Written(self._current_instances, channel))
        return Reference(self, target, versions)

    def _require_readable(self, reference: Reference) -> None:
        if reference.schedule is not self:
            raise ProgramError(
                f"{self.collective}: {describe(reference.chunk)} belongs to another"
                " schedule; name it with chunk() of this one"
            )
        self._writers.require_current(reference.chunk, reference.versions)

    def _place(self, rank: int, buffer: Buffer, index: int | None, count: int) -> Chunk:
        """Return the chunks after a range check; scratch grows on demand."""
        if not 0 <= rank < self.ranks:
            raise ProgramError(
                f"{self.collective}: no rank {rank}; ranks are 0 to {self.ranks - 1}"
            )
        if index is None:
            if buffer is not Buffer.SCRATCH:
                raise ProgramError(
                    f"{self.collective}: say which chunk of {buffer.name.lower()} of rank"
                    f" {rank}; only scratch chunks need no index"
                )
            index = self._scratch_used[rank]
        place = Chunk(rank, buffer, index, count)
        limit = index + count if buffer is Buffer.SCRATCH else self._size(rank, buffer)
        if index < 0 or count < 1 or index + count > limit:
            raise ProgramError(
                f"{self.collective}: out of range: {describe(place)}, which has {limit}"
            )
        if buffer is Buffer.SCRATCH:
            self._scratch_used[rank] = max(self._scratch_used[rank], index + count)
        return place

    def _size(self, rank: int, buffer: Buffer) -> int:
        traced = self._traced
        shape = (traced.collective, traced.ranks, traced.chunks_per_loop, rank, traced.root)
        return input_chunks(*shape) if buffer is Buffer.INPUT else output_chunks(*shape)
