"""`Schedule` and `Reference`: a schedule as it is being written, and chunks of its buffers.

Statements mean what they mean one after another; what may run side by side is found by lowering. So
a schedule is written with ordinary loops, and its order matters only where data depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from synthesizer.dsl.instances import in_instances
from synthesizer.dsl.writers import Versions, Writers, describe
from synthesizer.errors import ProgramError
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective, input_chunks, output_chunks
from synthesizer.ir.program import Chunk, Program


@dataclass(frozen=True, slots=True)
class Reference:
    """Chunks of one rank's buffer, with the value that they had when the reference was made."""

    schedule: Schedule = field(repr=False, compare=False)
    chunk: Chunk
    versions: Versions = field(repr=False)

    @property
    def rank(self) -> int:
        """The rank whose buffer it is."""
        return self.chunk.rank

    @property
    def buffer(self) -> Buffer:
        """Which of its buffers."""
        return self.chunk.buffer

    @property
    def index(self) -> int:
        """The first chunk."""
        return self.chunk.offset

    @property
    def count(self) -> int:
        """How many chunks."""
        return self.chunk.count

    def copy(
        self, rank: int, buffer: Buffer, index: int | None = None, channel: int = 0
    ) -> Reference:
        """Copies the chunks to a place on any rank; gives the copy.

        Args:
            rank: Where to.
            buffer: OUTPUT or SCRATCH.
            index: First chunk there; None for scratch chunks that nothing else uses.
            channel: Connection to use, where several between the same ranks shall be told apart.

        Raises:
            ProgramError: What is read was overwritten, the place does not exist or is an input
                buffer, or somebody else wrote there.
        """
        return self.schedule._copy(self, rank, buffer, index, channel)

    def reduce(
        self,
        other: Reference,
        buffer: Buffer | None = None,
        index: int | None = None,
        channel: int = 0,
    ) -> Reference:
        """Adds `other`, which may be on another rank; gives the sum.

        Args:
            other: As many chunks.
            buffer: Where on this rank the sum goes, instead of onto these chunks. An input buffer
                is never written, so a sum with input chunks must say it.
            index: First chunk there; None for scratch chunks that nothing else uses.
            channel: As in `copy`.

        Raises:
            ProgramError: As `copy`.
        """
        return self.schedule._reduce(self, other, buffer, index, channel)


class Schedule:
    """A schedule as it is being written."""

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
        """Starts a schedule without statements.

        Args:
            collective: What it computes.
            ranks: Number of ranks.
            chunks: Into how many chunks a rank's block (all_gather, reduce_scatter, alltoall) or
                the whole buffer (others) is cut.
            root: Of broadcast and reduce.
            in_place: Whether callers may give one buffer as input and output.
            out_of_place: Whether they may give two.

        Raises:
            ProgramError: No such schedule can exist.
        """
        if not (in_place or out_of_place):
            raise ProgramError(f"{collective}: a schedule must work in place or out of place")
        self._traced = Program(collective, ranks, chunks, root, in_place, out_of_place)
        self._writers = Writers(self._traced)
        self._instances: list[int] = []
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
        """What it computes."""
        return self._traced.collective

    def chunk(self, rank: int, buffer: Buffer, index: int, count: int = 1) -> Reference:
        """Neighbouring chunks of a rank's buffer, as they are now.

        Raises:
            ProgramError: There are no such chunks, or nothing has been written to them.
        """
        place = self._place(rank, buffer, index, count)
        return Reference(self, place, self._writers.versions(place))

    @contextmanager
    def parallelize(self, instances: int) -> Iterator[None]:
        """Runs what is written inside in so many instances, each over its part of the data.

        Each instance has channels of its own. One inside another multiplies.

        Raises:
            ProgramError: Less than one instance.
        """
        if instances < 1:
            raise ProgramError(f"{self.collective}: {instances} instances; give at least one")
        outer = self._current_instances
        self._current_instances = outer * instances
        try:
            yield
        finally:
            self._current_instances = outer

    def program(self) -> Program:
        """What was written so far, for `synthesizer.lower.lowering.lower`.

        Raises:
            ProgramError: Nothing was written.
        """
        if not self._instances:
            raise ProgramError(
                f"{self.collective}: the schedule is empty; copy or reduce some chunks"
            )
        return in_instances(self._traced, self._instances)

    def _copy(
        self, source: Reference, rank: int, buffer: Buffer, index: int | None, channel: int
    ) -> Reference:
        target = self._place(rank, buffer, index, source.count)
        self._require_readable(source)
        self._traced.copy(source.chunk, target, self._checked(channel))
        return self._written(target, source)

    def _reduce(
        self,
        own: Reference,
        other: Reference,
        buffer: Buffer | None,
        index: int | None,
        channel: int,
    ) -> Reference:
        if buffer is None and index is not None:
            raise ProgramError(
                f"{self.collective}: index {index} without a buffer; say both, or neither for a sum"
                f" onto {describe(own.chunk)}"
            )
        if buffer is None and own.buffer is Buffer.INPUT:
            raise ProgramError(
                f"{self.collective}: {describe(own.chunk)} is the caller's and stays as it"
                " is; say where the sum goes, as in reduce(other, OUTPUT, index)"
            )
        self._require_readable(own)
        self._require_readable(other)
        if own.count != other.count:
            raise ProgramError(
                f"{self.collective}: {describe(own.chunk)} and {describe(other.chunk)}"
                " differ in length; reduce as many chunks as there are"
            )
        target = self._place(own.rank, buffer, index, own.count) if buffer else own.chunk
        if own.rank == other.rank and target != own.chunk:
            own, other = self._begun_at(target, own, other, channel)
        self._traced.reduce(other.chunk, target, own.chunk, self._checked(channel))
        return self._written(target, other, own)

    def _begun_at(
        self, target: Chunk, own: Reference, other: Reference, channel: int
    ) -> tuple[Reference, Reference]:
        """Begins a local sum at its destination: a local instruction adds to what is there.

        Which of the two summands goes there first matters where the other one already lies there,
        as the rank's own input does in place.
        """
        if self._writers.share(other.chunk, target):
            own, other = other, own
        if self._writers.share(other.chunk, target):
            raise ProgramError(
                f"{self.collective}: {describe(own.chunk)} and {describe(other.chunk)} both overlap"
                f" {describe(target)}; put the sum elsewhere"
            )
        if own.chunk != target:
            own = self._copy(own, target.rank, target.buffer, target.offset, channel)
        return own, other

    def _written(self, target: Chunk, *read: Reference) -> Reference:
        try:
            versions = self._writers.record(reference.versions for reference in read)
        except ProgramError:
            self._traced.statements.pop()
            raise
        self._instances.append(self._current_instances)
        return Reference(self, target, versions)

    def _require_readable(self, reference: Reference) -> None:
        if reference.schedule is not self:
            raise ProgramError(
                f"{self.collective}: {describe(reference.chunk)} belongs to another"
                " schedule; name it with chunk() of this one"
            )
        self._writers.require_current(reference.chunk, reference.versions)

    def _checked(self, channel: int) -> int:
        if channel < 0:
            raise ProgramError(f"{self.collective}: channel {channel}; count them from 0")
        return channel

    def _place(self, rank: int, buffer: Buffer, index: int | None, count: int) -> Chunk:
        """Chunks that exist; of scratch as many as are asked for."""
        if not 0 <= rank < self.ranks:
            raise ProgramError(
                f"{self.collective}: no rank {rank}; ranks are 0 to {self.ranks - 1}"
            )
        if index is None:
            if buffer is not Buffer.SCRATCH:
                raise ProgramError(
                    f"{self.collective}: say which chunk of {buffer.name.lower()} of rank"
                    f" {rank}; only a place in scratch can be left open"
                )
            index = self._scratch_used[rank]
        place = Chunk(rank, buffer, index, count)
        limit = index + count if buffer is Buffer.SCRATCH else self._size(rank, buffer)
        if index < 0 or count < 1 or index + count > limit:
            raise ProgramError(
                f"{self.collective}: there is no {describe(place)}, which has {limit}"
            )
        if buffer is Buffer.SCRATCH:
            self._scratch_used[rank] = max(self._scratch_used[rank], index + count)
        return place

    def _size(self, rank: int, buffer: Buffer) -> int:
        traced = self._traced
        shape = (traced.collective, traced.ranks, traced.chunks_per_loop, rank, traced.root)
        return input_chunks(*shape) if buffer is Buffer.INPUT else output_chunks(*shape)
