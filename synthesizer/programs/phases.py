"""`PhasedSchedule`: a schedule across hosts, as a list of phases that all ranks run alike.

Between kernels inside each node, chunks cross the network in rounds: NCCL's own collectives on
rails. The ranks of a communicator form a grid: `nodes` nodes of `local_ranks` ranks each, and rank
`node * local_ranks + local` has place `local` in its node. The ranks with equal places form a
rail.

Phases run one after the other on every rank. A phase is one collective call, or several with equal
strides between their buffers: inside each node (`LOCAL`), or along each rail (`RAIL`); or a sum of
several chunks of one rank (`SUM`), which needs no other rank. Offsets count chunks of the call's
buffers and do not depend on the rank, so the form has the same size for any number of ranks.

Chunks: all_reduce divides its buffer into `input_chunks`; of all_gather, reduce_scatter and
alltoall a chunk is what NCCL's `count` says, so that the larger buffer has one for each rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from lookup_tables.table import BuiltinConfig
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.programs.layout import BUFFERS, Pattern

RAILS_MARK = "@"
"""Between the name of a plan and the configuration of its rails."""
LANES_MARK = "*"
"""Separator of a plan's name and the number of its lanes."""


class PhaseKind(IntEnum):
    """The ranks that take part in a phase; the values are codes of the binary form."""

    LOCAL = 0
    """A collective of the ranks of each node, by the executor's kernels."""
    RAIL = 1
    """A collective of the ranks of each rail, by NCCL."""
    SUM = 2
    """The reduction of adjacent chunks of one rank."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The first chunk of an operand."""

    buffer: Buffer
    chunk: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase, alike on all ranks."""

    kind: PhaseKind
    collective: Collective
    """For `SUM` it is `Collective.REDUCE`."""
    source: Place
    target: Place
    chunks: int = 1
    """NCCL's `count` of the collective, in chunks: of the send buffer for all_gather, of the
    receive buffer for reduce_scatter, for each peer for alltoall. Of `SUM`: chunks of a summand."""
    repeats: int = 1
    """Number of calls. Of `SUM`: number of summands, which are adjacent."""
    source_stride: int = 0
    """Chunks from the source of one call to that of the next."""
    target_stride: int = 0
    pattern: Pattern = Pattern.NONE
    """Kernel of `LOCAL`, as in a program's header."""
    rail: BuiltinConfig | None = None
    """Configuration of `RAIL` that the tuner plugin chooses; None: NCCL's own choice. NCCL does not
    ask about alltoall."""

    def source_chunks(self, group: int) -> int:
        """Return the chunks that one call reads.

        Args:
            group: Ranks of the node or of the rail.
        """
        if self.kind is PhaseKind.SUM:
            return self.chunks * self.repeats
        spread = self.collective in {Collective.REDUCE_SCATTER, Collective.ALLTOALL}
        return self.chunks * (group if spread else 1)

    def target_chunks(self, group: int) -> int:
        """Return the chunks that one call writes."""
        spread = self.collective in {Collective.ALL_GATHER, Collective.ALLTOALL}
        return self.chunks * (group if spread else 1)

    @property
    def calls(self) -> int:
        """Number of calls; a sum is one."""
        return 1 if self.kind is PhaseKind.SUM else self.repeats


@dataclass(frozen=True, slots=True)
class PhasedSchedule:
    """A schedule for nodes of equal size."""

    name: str
    """Name of the plan, unique among those for one collective."""
    collective: Collective
    nodes: int
    local_ranks: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    phases: tuple[Phase, ...]
    lanes: int = 1
    """Communicators of each rail. Slices of a call are spread over them, so that several threads of
    NCCL drive the network at once."""

    @property
    def ranks(self) -> int:
        """Number of ranks of the communicator."""
        return self.nodes * self.local_ranks

    def group(self, phase: Phase) -> int:
        """Return the ranks that take part in a call of a phase."""
        members = {PhaseKind.LOCAL: self.local_ranks, PhaseKind.RAIL: self.nodes}
        return members.get(phase.kind, 1)

    def chunks_of(self, buffer: Buffer) -> int:
        """Return the chunks of a buffer of each rank."""
        sizes = (self.input_chunks, self.output_chunks, self.scratch_chunks)
        return sizes[BUFFERS.index(buffer)]

    def with_rails(self, rail: BuiltinConfig) -> PhasedSchedule:
        """Return the schedule with a configuration for all calls along rails that NCCL asks about.

        Its name says which: `exchange@ring-LL-1`.
        """
        phases = tuple(
            replace(phase, rail=rail)
            if phase.kind is PhaseKind.RAIL and phase.collective is not Collective.ALLTOALL
            else phase
            for phase in self.phases
        )
        words = (rail.algorithm.value, rail.protocol.value, str(rail.nchannels))
        return replace(self, name=f"{self.name}{RAILS_MARK}{'-'.join(words)}", phases=phases)

    def with_lanes(self, lanes: int) -> PhasedSchedule:
        """Return the schedule with so many communicators of each rail.

        Its name says how many: `exchange*4`. To be called before `with_rails`.
        """
        return replace(self, name=f"{self.name}{LANES_MARK}{lanes}", lanes=lanes)


def groups(phased: PhasedSchedule, phase: Phase) -> Iterator[range]:
    """Return the ranks of each node, of each rail, or each rank by itself."""
    local_ranks, ranks = phased.local_ranks, phased.ranks
    if phase.kind is PhaseKind.SUM:
        yield from (range(rank, rank + 1) for rank in range(ranks))
    elif phase.kind is PhaseKind.LOCAL:
        yield from (range(first, first + local_ranks) for first in range(0, ranks, local_ranks))
    else:
        yield from (range(local, ranks, local_ranks) for local in range(local_ranks))
