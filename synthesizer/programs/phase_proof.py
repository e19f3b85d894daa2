"""Symbolic run of a phased schedule on all ranks: the proof that it computes its operation.

A chunk's content is one input chunk, the ranks whose contributions are added up, and the number by
which an average has divided: each reducing call divides by the number of its summands. Only equal
chunks of different ranks with equal divisors may be added, so a result that holds every rank is
right for sums and averages alike. Reading a chunk that nothing was written to is refused.

The run is repeated in place, where input and output share memory as NCCL says
(`synthesizer.ir.collectives`). There operands of one call may share memory only as NCCL
allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective, initial_contents, postcondition
from synthesizer.programs.phase_form import REDUCING, check_form
from synthesizer.programs.phases import Phase, PhasedSchedule, PhaseKind, Place, groups
from tuccl.errors import NoProgramError

MOST_CELLS = 1 << 22
"""Most chunks of all buffers of all ranks in a proof: 1,024 ranks of any plan, ten seconds."""


class Part(NamedTuple):
    """The content of a chunk."""

    chunk: int
    ranks: int
    """Ranks whose input chunks are added up, as bits."""
    divisor: int
    """Number by which an average has divided."""


_NOTHING = Part(-1, 0, 0)
"""The content of a chunk that nothing has written."""


def prove(phased: PhasedSchedule) -> bool:
    """Prove that a schedule computes its operation.

    Returns:
        Whether it does so in place, too.

    Raises:
        NoProgramError: It breaks a rule of the form, or is too large for a proof.
        NoProgramError: It does not; the message says where.
    """
    check_form(phased)
    return _proved(_flow(phased))


def _flow(phased: PhasedSchedule) -> PhasedSchedule:
    """Return the schedule without name, lanes and configurations of rails, which move no chunk."""
    phases = tuple(replace(phase, rail=None) for phase in phased.phases)
    return replace(phased, name="", lanes=1, phases=phases)


def is_within_reach(phased: PhasedSchedule) -> bool:
    """Whether a proof has room for all chunks of all ranks."""
    return phased.ranks * _chunks_of_a_rank(phased) <= MOST_CELLS


def _chunks_of_a_rank(phased: PhasedSchedule) -> int:
    return phased.input_chunks + phased.output_chunks + phased.scratch_chunks


@lru_cache(maxsize=256)
def _proved(phased: PhasedSchedule) -> bool:
    if not is_within_reach(phased):
        raise NoProgramError(
            f"{phased.ranks} ranks with {_chunks_of_a_rank(phased)} chunks each are more than a "
            f"proof can follow; it has room for {MOST_CELLS} chunks"
        )
    _Machine(phased, in_place=False).run()
    try:
        _Machine(phased, in_place=True).run()
    except NoProgramError:
        return False
    return True


class _Machine:
    """The memory of all ranks."""

    def __init__(self, phased: PhasedSchedule, *, in_place: bool) -> None:
        self.phased = phased
        self.where = "in place, " if in_place else ""
        sizes = (phased.input_chunks, phased.output_chunks, phased.scratch_chunks)
        self.larger = max(sizes[:2])
        self.bases = [_bases(phased, rank, in_place=in_place) for rank in range(phased.ranks)]
        self.memory: list[list[Part]] = []
        for rank, bases in enumerate(self.bases):
            memory = [_NOTHING] * (bases[Buffer.SCRATCH] + phased.scratch_chunks)
            first = bases[Buffer.INPUT]
            contents = initial_contents(phased.collective, phased.ranks, self.larger, rank)
            memory[first : first + len(contents)] = [Part(*value, 1) for value in contents]
            self.memory.append(memory)

    def run(self) -> None:
        """Run all phases and check the result."""
        for number, phase in enumerate(self.phased.phases):
            name = f"{self.where}phase {number}"
            self._check_operands(phase, name)
            for members in groups(self.phased, phase):
                for call in range(phase.calls):
                    self._call(phase, members, call, name)
        for rank in range(self.phased.ranks):
            self._check_result(rank)

    def _call(self, phase: Phase, members: Sequence[int], call: int, name: str) -> None:
        group = len(members)
        first, length = phase.source.chunk + call * phase.source_stride, phase.source_chunks(group)
        source = Place(phase.source.buffer, first)
        sources = [self._read(rank, source, length, name) for rank in members]
        target = Place(phase.target.buffer, phase.target.chunk + call * phase.target_stride)
        adder = _adder(name)
        for rank, values in zip(members, _results(phase, sources, adder), strict=True):
            at = self.bases[rank][target.buffer] + target.chunk
            self.memory[rank][at : at + len(values)] = values

    def _read(self, rank: int, place: Place, length: int, name: str) -> list[Part]:
        at = self.bases[rank][place.buffer] + place.chunk
        values = self.memory[rank][at : at + length]
        if _NOTHING in values:
            raise NoProgramError(f"{name} reads a chunk of rank {rank} that nothing has written")
        return values

    def _check_operands(self, phase: Phase, name: str) -> None:
        """Check that operands share memory only as NCCL allows."""
        group = self.phased.group(phase)
        lengths = phase.source_chunks(group), phase.target_chunks(group)
        spans = [
            (phase.calls - 1) * stride for stride in (phase.source_stride, phase.target_stride)
        ]
        for rank, bases in enumerate(self.bases):
            source = bases[phase.source.buffer] + phase.source.chunk
            target = bases[phase.target.buffer] + phase.target.chunk
            ends = source + spans[0] + lengths[0], target + spans[1] + lengths[1]
            if ends[0] <= target or ends[1] <= source:
                continue
            offset = _place_of(self.phased, phase, rank) * phase.chunks
            allowed = {
                Collective.ALL_REDUCE: target,
                Collective.ALL_GATHER: target + offset,
                Collective.REDUCE_SCATTER: target - offset,
            }.get(phase.collective)
            apart = phase.calls == 1 or phase.source_stride >= max(lengths)
            if source != allowed or spans[0] != spans[1] or not apart:
                raise NoProgramError(f"{name} reads what it writes on rank {rank}")

    def _check_result(self, rank: int) -> None:
        phased = self.phased
        divisor = phased.ranks if phased.collective in REDUCING else 1
        wanted = postcondition(phased.collective, phased.ranks, self.larger, rank)
        first = self.bases[rank][Buffer.OUTPUT]
        found = self.memory[rank][first : first + phased.output_chunks]
        for chunk, (value, result) in enumerate(zip(wanted, found, strict=True)):
            if result != (*value, divisor):
                raise NoProgramError(
                    f"{self.where}chunk {chunk} of rank {rank}'s output holds {_named(result)} "
                    f"instead of {_named(Part(*value, divisor))}"
                )


def _bases(phased: PhasedSchedule, rank: int, *, in_place: bool) -> dict[Buffer, int]:
    """Return the address of each buffer of a rank."""
    inputs, outputs = phased.input_chunks, phased.output_chunks
    if not in_place:
        return {Buffer.INPUT: 0, Buffer.OUTPUT: inputs, Buffer.SCRATCH: inputs + outputs}
    return {
        Buffer.INPUT: rank * inputs if phased.collective is Collective.ALL_GATHER else 0,
        Buffer.OUTPUT: rank * outputs if phased.collective is Collective.REDUCE_SCATTER else 0,
        Buffer.SCRATCH: max(inputs, outputs),
    }


def _place_of(phased: PhasedSchedule, phase: Phase, rank: int) -> int:
    """Return a rank's place in its group."""
    node, local = divmod(rank, phased.local_ranks)
    return {PhaseKind.LOCAL: local, PhaseKind.RAIL: node}.get(phase.kind, 0)


_Adder = Callable[[Sequence[Part]], Part]


def _adder(name: str) -> _Adder:
    def added(parts: Sequence[Part]) -> Part:
        chunk, ranks, divisor = parts[0]
        for part in parts[1:]:
            other_chunk, other_ranks, other_divisor = part
            if other_chunk != chunk or other_divisor != divisor or other_ranks & ranks:
                raise NoProgramError(f"{name} adds {_named(parts[0])} and {_named(part)}")
            ranks |= other_ranks
        return Part(chunk, ranks, divisor * len(parts))

    return added


def _results(phase: Phase, sources: list[list[Part]], added: _Adder) -> Iterator[list[Part]]:
    """Return what one call writes, by member of the group."""
    chunks = phase.chunks
    blocks = [slice(i * chunks, (i + 1) * chunks) for i in range(len(sources))]
    match phase.collective:
        case Collective.ALL_REDUCE:
            result = [added(parts) for parts in zip(*sources, strict=True)]
            yield from ([*result] for _ in sources)
        case Collective.ALL_GATHER:
            gathered = [part for source in sources for part in source]
            yield from (gathered for _ in sources)
        case Collective.REDUCE_SCATTER:
            for block in blocks:
                parts = zip(*(source[block] for source in sources), strict=True)
                yield [added(summands) for summands in parts]
        case Collective.ALLTOALL:
            for block in blocks:
                yield [part for source in sources for part in source[block]]
        case _:
            (source,) = sources
            yield [added(source[i::chunks]) for i in range(chunks)]


def _named(part: Part) -> str:
    if part is _NOTHING:
        return "nothing"
    ranks = part.ranks.bit_count()
    lowest = (part.ranks & -part.ranks).bit_length() - 1
    of = f"rank {lowest}" if ranks == 1 else f"{ranks} ranks"
    divided = f" divided by {part.divisor}" if part.divisor > 1 else ""
    return f"input chunk {part.chunk} of {of}{divided}"
