"""`PhasedSchedule`: a schedule across hosts, as a list of phases.

All ranks take the phases in one order. There are two kinds of such schedules.

- A uniform schedule is for nodes of equal size, and its phases are alike on all ranks: collectives
  inside each node (`LOCAL`) or along each rail (`RAIL`), one call or several with equal strides
  between their buffers; and sums of several chunks of a rank (`SUM`). Rank `node * local_ranks +
  local` has place `local` in its node, and the ranks with equal places form a rail. Offsets do not
  depend on the rank, so the schedule has the same size for any number of ranks.
- Any other schedule consists of statements (`synthesizer.ir.program`) over the buffers of all
  ranks. A stage (`STAGE`) runs inside every node, one statement after the other; a round (`ROUND`)
  sends chunks between nodes, all at once, as a group of ncclSend and ncclRecv does, and beside that
  runs statements inside nodes that need none of what it sends. They take turns: stage 0, round 1,
  stage 1 and so on. Nodes may differ in size, and ranks in their work.

Both have the caller's input and output, and scratch memory that keeps its chunks from phase to
phase.

The executor (`tuccl/runtime/executor/statement_plan.h`) cuts a part of the buffer, one for each
rank or all of it, into chunks of whole 16 bytes; the last may be shorter, or empty. Scratch memory
holds chunks of the same size. A slice of the call is some bytes of each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.buffer_layout import first_addresses
from synthesizer.ir.contents import input_chunks, output_chunks
from synthesizer.ir.program import Statement
from synthesizer.programs.layout import BUFFERS, Pattern, PhaseKind

_Part = TypeVar("_Part")

MOST_SCRATCH_BYTES = 256 << 20
"""Most scratch memory of a call (`tuccl/runtime/executor/staging_need.h`)."""
MOST_SLICES = 64
_GRAIN_BYTES = 16
_SLICE_GRAIN_BYTES = 480
"""Data of a piece of LL128."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of a call, which have as many bytes of each chunk."""

    count: int
    chunk_bytes: int
    """Bytes of a chunk in each slice but the last."""


def chunk_bytes_of(phased: PhasedSchedule, size_bytes: int) -> int:
    """Return the bytes of a chunk of a call, whose size is the larger of its two buffers."""
    part_bytes = size_bytes // phased.collective.parts(phased.ranks)
    return -(-part_bytes // (phased.chunks * _GRAIN_BYTES)) * _GRAIN_BYTES


def slices_of_call(phased: PhasedSchedule, size_bytes: int, slice_bytes: int) -> Slices:
    """Return the slices of a call, which is to have slices of at most so many bytes."""
    chunk_bytes = chunk_bytes_of(phased, size_bytes)
    wanted = min(-(-size_bytes // slice_bytes), MOST_SLICES)
    if wanted <= 1:
        return Slices(1, chunk_bytes)
    each = -(-chunk_bytes // (wanted * _SLICE_GRAIN_BYTES)) * _SLICE_GRAIN_BYTES
    return Slices(-(-chunk_bytes // each), min(each, chunk_bytes))


def has_scratch_for(phased: PhasedSchedule, size_bytes: int) -> bool:
    """Whether the executor's scratch memory holds what a call of a size keeps."""
    return max(phased.scratch_chunks) * chunk_bytes_of(phased, size_bytes) <= MOST_SCRATCH_BYTES


RAILS_MARK = "@"
"""Between the name of a plan and the configuration of its rails."""
LANES_MARK = "*"
"""Separator of a plan's name and the number of its lanes."""

Statements = tuple[Statement, ...]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The first chunk of an operand."""

    buffer: Buffer
    chunk: int


@dataclass(frozen=True, slots=True)
class CallPhase:
    """Collectives or sums, alike on all ranks."""

    kind: PhaseKind
    collective: Collective
    """For `SUM` it is `Collective.REDUCE`."""
    source: Place
    target: Place
    chunks: int = 1
    """NCCL's `count` of the collective, in chunks: of a rank's part if buffers have parts, else of
    the whole buffer. Of `SUM`: chunks of a summand."""
    repeats: int = 1
    """Number of calls. Of `SUM`: number of summands, which are adjacent."""
    source_stride: int = 0
    """Chunks from the source of one call to that of the next."""
    target_stride: int = 0
    pattern: Pattern = Pattern.NONE
    """Kernel of `LOCAL`."""
    rail: BuiltinConfig | None = None
    """Configuration of `RAIL` that the tuner plugin chooses; if None, NCCL chooses."""

    def source_chunks(self, group: int) -> int:
        """Return the chunks that one call of `group` ranks reads."""
        if self.kind is PhaseKind.SUM:
            return self.chunks * self.repeats
        return self.chunks * (group if self.collective.splits else 1)

    def target_chunks(self, group: int) -> int:
        """Return the chunks that one call writes."""
        return self.chunks * (group if self.collective.joins else 1)

    @property
    def calls(self) -> int:
        """Number of calls; a sum is one."""
        return 1 if self.kind is PhaseKind.SUM else self.repeats


@dataclass(frozen=True, slots=True)
class StatementPhase:
    """A stage or a round."""

    kind: PhaseKind
    statements: Statements


Phase = CallPhase | StatementPhase


@dataclass(frozen=True, slots=True)
class PhasedSchedule:
    """A schedule across hosts."""

    name: str
    """Of a uniform schedule: name of the plan, unique among those for one collective."""
    collective: Collective
    node_sizes: tuple[int, ...]
    """Ranks of each node, which follow one another."""
    chunks: int
    """Chunks of a rank's part, or of the whole buffer if ranks do not divide it."""
    scratch_chunks: tuple[int, ...]
    """Scratch chunks of each rank; one number if the schedule is uniform."""
    phases: tuple[Phase, ...]
    root: int = 0
    lanes: int = 1
    """Communicators of each rail, or of all ranks for rounds. Slices of a call are spread over
    them, so that several threads of NCCL drive the network at once."""

    @property
    def ranks(self) -> int:
        """Number of ranks of the communicator."""
        return sum(self.node_sizes)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_sizes)

    @property
    def is_uniform(self) -> bool:
        """Whether all ranks do the same."""
        return any(isinstance(phase, CallPhase) for phase in self.phases)

    @property
    def local_ranks(self) -> int:
        """Ranks of a node of a uniform schedule."""
        return self.node_sizes[0]

    @property
    def calls(self) -> tuple[CallPhase, ...]:
        """The phases of a uniform schedule; none of another one."""
        return tuple(phase for phase in self.phases if isinstance(phase, CallPhase))

    @property
    def stages(self) -> tuple[Statements, ...]:
        """Statements of each stage; none of a uniform schedule."""
        return self._statements_of(PhaseKind.STAGE)

    @property
    def rounds(self) -> tuple[Statements, ...]:
        """Statements of each round: messages between nodes, and what runs beside them."""
        return self._statements_of(PhaseKind.ROUND)

    @property
    def messages(self) -> tuple[Statements, ...]:
        """Messages of each round, copies between ranks of different nodes."""
        return self._of_rounds(are_messages=True)

    @property
    def beside(self) -> tuple[Statements, ...]:
        """Statements inside nodes that run beside the messages of each round."""
        return self._of_rounds(are_messages=False)

    def _of_rounds(self, *, are_messages: bool) -> tuple[Statements, ...]:
        node = self.node_of_rank()
        return tuple(
            tuple(s for s in sent if (node[s.src.rank] != node[s.dst.rank]) is are_messages)
            for sent in self.rounds
        )

    def _statements_of(self, kind: PhaseKind) -> tuple[Statements, ...]:
        return tuple(
            phase.statements
            for phase in self.phases
            if isinstance(phase, StatementPhase) and phase.kind is kind
        )

    @property
    def larger_chunks(self) -> int:
        """Chunks of the larger of a rank's input and output."""
        return self.chunks * self.collective.parts(self.ranks)

    @property
    def must_run_in_place(self) -> bool:
        """Whether calls may be in place."""
        return self.collective.has_place

    def node_of_rank(self) -> tuple[int, ...]:
        """Return the node of each rank."""
        return tuple(node for node, size in enumerate(self.node_sizes) for _ in range(size))

    def group(self, phase: CallPhase) -> int:
        """Return the ranks that take part in a call of a phase."""
        members = {PhaseKind.LOCAL: self.local_ranks, PhaseKind.RAIL: self.nodes}
        return members.get(phase.kind, 1)

    def chunks_of(self, buffer: Buffer, rank: int = 0) -> int:
        """Return the chunks of a rank's buffer."""
        if buffer is Buffer.SCRATCH:
            return self.scratch_chunks[0 if len(self.scratch_chunks) == 1 else rank]
        count = input_chunks if buffer is Buffer.INPUT else output_chunks
        return count(self.collective, self.ranks, self.larger_chunks, rank, self.root)

    def addresses(self, rank: int, *, in_place: bool) -> dict[Buffer, int]:
        """Return the first address of each buffer in a rank's memory, in chunks.

        In place input and output share memory as NCCL has it.
        """
        inputs, outputs, _ = (self.chunks_of(buffer, rank) for buffer in BUFFERS)
        return first_addresses(self.collective, rank, inputs, outputs, in_place=in_place)

    def with_rails(self, rail: BuiltinConfig) -> PhasedSchedule:
        """Return the schedule with a configuration for all calls along rails that NCCL asks about.

        Its name says which: `exchange@ring-LL-1`.
        """
        phases = tuple(
            replace(phase, rail=rail)
            if phase.kind is PhaseKind.RAIL and phase.collective.asks_tuner
            else phase
            for phase in self.calls
        )
        words = (rail.algorithm.value, rail.protocol.value, str(rail.nchannels))
        return replace(self, name=f"{self.name}{RAILS_MARK}{'-'.join(words)}", phases=phases)

    def with_lanes(self, lanes: int) -> PhasedSchedule:
        """Return the schedule with so many communicators of each rail or of all ranks.

        Its name says how many: `exchange*4`. To be called before `with_rails`.
        """
        return replace(self, name=f"{self.name}{LANES_MARK}{lanes}", lanes=lanes)


def in_turn(stages: tuple[Statements, ...], rounds: tuple[Statements, ...]) -> tuple[Phase, ...]:
    """Return stages and rounds as phases; there is one stage more than rounds."""
    phases = [StatementPhase(PhaseKind.STAGE, stages[0])]
    for sent, stage in zip(rounds, stages[1:], strict=True):
        phases += [StatementPhase(PhaseKind.ROUND, sent), StatementPhase(PhaseKind.STAGE, stage)]
    return tuple(phases)


def groups(phased: PhasedSchedule, phase: CallPhase) -> Iterator[range]:
    """Return the ranks of each node, of each rail, or each rank by itself."""
    local_ranks, ranks = phased.local_ranks, phased.ranks
    if phase.kind is PhaseKind.SUM:
        yield from (range(rank, rank + 1) for rank in range(ranks))
    elif phase.kind is PhaseKind.LOCAL:
        yield from (range(first, first + local_ranks) for first in range(0, ranks, local_ranks))
    else:
        yield from (range(local, ranks, local_ranks) for local in range(local_ranks))


def received(
    phase: CallPhase, sources: list[list[_Part]], add: Callable[[Sequence[_Part]], _Part]
) -> Iterator[list[_Part]]:
    """Yield what each member of a group receives in a phase.

    Args:
        phase: The phase.
        sources: The chunks that each member gives.
        add: Adds the parts of a chunk, where the phase's operation reduces.
    """

    def combined(given: Sequence[Sequence[_Part]]) -> list[_Part]:
        if phase.collective.joins:
            return [part for parts in given for part in parts]
        return [add(parts) for parts in zip(*given, strict=True)]

    chunks = phase.chunks
    if phase.kind is PhaseKind.SUM:
        (own,) = sources
        yield combined([own[i : i + chunks] for i in range(0, len(own), chunks)])
    elif phase.collective.splits:
        for first in range(0, len(sources) * chunks, chunks):
            yield combined([source[first : first + chunks] for source in sources])
    else:
        result = combined(sources)
        yield from (result for _ in sources)
