"""The data flow of a phased schedule as MSCCL-IR: for XML, the model and the verifier.

An executor runs the phases; this form says what crosses which link. The kernels inside a node send
directly, as their patterns do. On a rail, all_gather and alltoall send directly, all_reduce and
reduce_scatter go around a ring, as NCCL's do. A ring's all_reduce has a piece for each node, so the
chunks of such a schedule are cut into as many pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synthesizer.ir.algorithm import Algorithm, Buffer, Protocol
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Program
from synthesizer.lower.lowering import lower
from synthesizer.programs.layout import Pattern
from synthesizer.programs.phase_proof import prove
from synthesizer.programs.phases import Phase, PhasedSchedule, PhaseKind, Place, groups
from synthesizer.prove.verifier import verify
from tuccl.errors import ScheduleError


def as_algorithm(
    phased: PhasedSchedule, name: str = "", protocol: Protocol = Protocol.SIMPLE
) -> Algorithm:
    """Return a schedule with the data flow of a phased one.

    Args:
        phased: The phased schedule.
        name: Name of the result; operation, plan and grid by default.
        protocol: Protocol of the result.

    Raises:
        NoProgramError: The phased schedule breaks a rule of the form, or is too large for a proof.
        NoProgramError: It does not compute its operation.
        ProgramError: It exceeds the limits of MSCCL-IR.
        ScheduleError: The result fails the verifier, which must not be.
    """
    in_place = prove(phased)
    pieces = phased.nodes if any(map(_goes_around_in_pieces, phased.phases)) else 1
    chunks = 1 if phased.collective.divides_by_ranks else phased.input_chunks
    program = Program(phased.collective, phased.ranks, chunks * pieces, in_place=in_place)
    for rank in range(phased.ranks):
        if phased.scratch_chunks:
            program.scratch(rank, phased.scratch_chunks * pieces)
    for phase in phased.phases:
        for call in range(phase.calls):
            for members in groups(phased, phase):
                _add(_Call(program, phase, call, members, pieces))
    algorithm = lower(program, name or _name(phased), protocol)
    verdict = verify(algorithm)
    if not verdict.proved:
        raise ScheduleError(f"{algorithm.name}: {verdict.defects[0].describe()}")
    return algorithm


def _name(phased: PhasedSchedule) -> str:
    plan = phased.name or "phases"
    return f"{phased.collective}_{plan}_{phased.nodes}x{phased.local_ranks}"


def _goes_around_in_pieces(phase: Phase) -> bool:
    return phase.kind is PhaseKind.RAIL and phase.collective is Collective.ALL_REDUCE


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a phase among the members of one node or rail."""

    program: Program
    phase: Phase
    number: int
    members: Sequence[int]
    pieces: int
    """Chunks of the result for each of the phase."""

    @property
    def chunks(self) -> int:
        """NCCL's `count`, in chunks of the result."""
        return self.phase.chunks * self.pieces

    def source(self, member: int, block: int = 0, count: int = 0) -> Chunk:
        """Return a block of a member's source."""
        return self._chunk(self.phase.source, self.phase.source_stride, member, block, count)

    def target(self, member: int, block: int = 0, count: int = 0) -> Chunk:
        """Return a block of a member's target."""
        return self._chunk(self.phase.target, self.phase.target_stride, member, block, count)

    def others(self, member: int) -> list[int]:
        """Return the other members, beginning with the next, so that not all send to the first."""
        group = len(self.members)
        return [(member + distance) % group for distance in range(1, group)]

    def scratch(self, member: int) -> Chunk:
        """Return new scratch memory for a block."""
        return self.program.scratch(self.members[member], self.chunks)

    def _chunk(self, place: Place, stride: int, member: int, block: int, count: int) -> Chunk:
        count = count or self.chunks
        first = (place.chunk + self.number * stride) * self.pieces + block * count
        return Chunk(self.members[member], place.buffer, first, count)


def _add(call: _Call) -> None:
    phase = call.phase
    ring = phase.kind is PhaseKind.RAIL
    match phase.collective:
        case Collective.ALL_GATHER:
            _gather(call)
        case Collective.ALLTOALL:
            _exchange(call)
        case Collective.REDUCE_SCATTER:
            (_ring_scatter if ring else _scatter)(call)
        case Collective.ALL_REDUCE if ring:
            _ring_all_reduce(call)
        case Collective.ALL_REDUCE:
            (_one_phase if phase.pattern is Pattern.ONE_PHASE else _two_phase)(call)
        case _:
            _sum(call)


def _gather(call: _Call) -> None:
    for member in range(len(call.members)):
        for receiver in [member, *call.others(member)]:
            call.program.copy(call.source(member), call.target(receiver, member))


def _exchange(call: _Call) -> None:
    for member in range(len(call.members)):
        for receiver in [member, *call.others(member)]:
            call.program.copy(call.source(member, receiver), call.target(receiver, member))


def _scatter(call: _Call) -> None:
    for owner in range(len(call.members)):
        total = call.source(owner, owner)
        for peer in call.others(owner):
            total = call.program.reduce(call.source(peer, owner), call.target(owner), total)


def _ring_scatter(call: _Call) -> None:
    for owner in range(len(call.members)):
        first, *between = call.others(owner)
        partial = call.source(first, owner)
        for member in between:
            kept, own = call.scratch(member), call.source(member, owner)
            partial = call.program.reduce(partial, kept, own)
        call.program.reduce(partial, call.target(owner), call.source(owner, owner))


def _ring_all_reduce(call: _Call) -> None:
    """Add the statements step by step, so that all members send at once."""
    group, count = len(call.members), call.phase.chunks
    partial = {piece: call.source(piece, piece, count) for piece in range(group)}
    for step in range(2 * (group - 1)):
        for sender in range(group):
            receiver, piece = (sender + 1) % group, (sender - step) % group
            target = call.target(receiver, piece, count)
            if step < group - 1:
                own = call.source(receiver, piece, count)
                partial[piece] = call.program.reduce(partial[piece], target, own)
            else:
                partial[piece] = call.program.copy(partial[piece], target)


def _one_phase(call: _Call) -> None:
    # A target on the source is not written before all have read it.
    kept = call.phase.source.buffer is not call.phase.target.buffer
    kept &= (
        call.phase.source.buffer is not Buffer.INPUT
        or call.phase.target.buffer is not Buffer.OUTPUT
    )
    sums = []
    for member in range(len(call.members)):
        total, target = call.source(member), call.target(member) if kept else call.scratch(member)
        for peer in call.others(member):
            total = call.program.reduce(call.source(peer), target, total)
        sums.append(total)
    if not kept:
        for member, total in enumerate(sums):
            call.program.copy(total, call.target(member))


def _two_phase(call: _Call) -> None:
    """Reduce each chunk at its owner and copy the sum to the others."""
    for chunk in range(call.chunks):
        owner = chunk % len(call.members)
        total = call.source(owner, chunk, 1)
        for peer in call.others(owner):
            source, target = call.source(peer, chunk, 1), call.target(owner, chunk, 1)
            total = call.program.reduce(source, target, total)
        for peer in call.others(owner):
            call.program.copy(total, call.target(peer, chunk, 1))


def _sum(call: _Call) -> None:
    total = call.program.copy(call.source(0), call.target(0))
    for summand in range(1, call.phase.repeats):
        call.program.reduce(call.source(0, summand), total)
