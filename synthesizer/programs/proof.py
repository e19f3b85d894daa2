"""The proof that a phased schedule computes its operation: a symbolic run on all ranks.

A chunk's content is one input chunk and the ranks whose contributions are added up (`Sum`). Only
equal chunks of different ranks may be added, and reading a chunk that nothing has written is
refused. An average divides each sum of a call by the number of its summands, so calls may add sums
of equally many ranks only: then each sum has been divided by the number of its ranks, and a result
that holds every rank is right for sums and averages alike. A statement divides only if its sum
holds every rank's contribution.

One order of execution stands for all. A thread of a stage's kernel moves the same bytes of each
chunk in all statements and on all ranks of a node, in their order; messages of a round read nothing
that another writes (`synthesizer.programs.form`); and calls follow one another on a stream. So no
two accesses to a byte race. Ranks cannot wait for each other in a circle either: all take the
phases in one order, a rank's stage or collective waits for the same one of its group alone, each
message of a stage has memory of its own at its receiver, and a group of sends and receives goes on
in all of its parts at once. So the ranks that are farthest behind can always go on.

The run is repeated in place, where input and output share memory as NCCL has it. There operands of
one call may share memory only as NCCL allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.contents import Sum, initial_contents, postcondition
from synthesizer.ir.program import Chunk
from synthesizer.programs.form import check_form, name_of
from synthesizer.programs.layout import BUFFERS, PhaseKind
from synthesizer.programs.phases import CallPhase, PhasedSchedule, Statements, groups, received
from tuccl.errors import NoProgramError

MOST_CELLS = 1 << 22
"""Most chunks of all buffers of all ranks in a proof: 1,024 ranks of any plan, ten seconds."""


class Proof(NamedTuple):
    """What was proved of a schedule beside its result."""

    in_place: bool
    """Whether it computes its operation in place, too."""
    averages: bool
    """Whether averages are right, too."""
    completing: frozenset[tuple[int, int]] = frozenset()
    """Phase and number of the statements that divide an average: their sums hold every rank's
    contribution."""


def prove(phased: PhasedSchedule) -> Proof:
    """Prove that a schedule computes its operation.

    Raises:
        NoProgramError: It breaks a rule of the form, is too large for a proof, or does not compute
            its operation; the message says where.
    """
    check_form(phased)
    return _proved(_flow(phased))


def _flow(phased: PhasedSchedule) -> PhasedSchedule:
    """Return the schedule without name, lanes and configurations of rails, which move no chunk."""
    if not phased.is_uniform:
        return replace(phased, name="", lanes=1)
    phases = tuple(replace(phase, rail=None) for phase in phased.calls)
    return replace(phased, name="", lanes=1, phases=phases)


def is_within_reach(phased: PhasedSchedule) -> bool:
    """Whether a proof has room for all chunks of all ranks."""
    return _cells(phased) <= MOST_CELLS


def _cells(phased: PhasedSchedule) -> int:
    if phased.is_uniform:
        return phased.ranks * sum(phased.chunks_of(buffer) for buffer in BUFFERS)
    return sum(phased.chunks_of(buffer, rank) for buffer in BUFFERS for rank in range(phased.ranks))


@lru_cache(maxsize=256)
def _proved(phased: PhasedSchedule) -> Proof:
    if not is_within_reach(phased):
        raise NoProgramError(
            f"the buffers of its {phased.ranks} ranks have {_cells(phased)} chunks, a proof can "
            f"follow {MOST_CELLS}"
        )
    machine = _Machine(phased, in_place=False)
    machine.run()
    in_place = phased.is_uniform or phased.must_run_in_place
    try:
        if in_place:
            _Machine(phased, in_place=True).run()
    except NoProgramError:
        if not phased.is_uniform:
            raise
        in_place = False
    return machine.proof(in_place=in_place)


class _Machine:
    def __init__(self, phased: PhasedSchedule, *, in_place: bool) -> None:
        self.phased = phased
        self.where = "in place, " if in_place else ""
        self.everyone = (1 << phased.ranks) - 1
        self.completing: set[tuple[int, int]] = set()
        self.is_whole = True
        """Whether no statement makes complete and incomplete sums at once."""
        self.bases = [phased.addresses(rank, in_place=in_place) for rank in range(phased.ranks)]
        self.memory: list[list[Sum | None]] = []
        for rank, bases in enumerate(self.bases):
            scratch = phased.chunks_of(Buffer.SCRATCH, rank)
            memory: list[Sum | None] = [None] * (bases[Buffer.SCRATCH] + scratch)
            first = bases[Buffer.INPUT]
            contents = initial_contents(
                phased.collective, phased.ranks, phased.larger_chunks, rank, phased.root
            )
            memory[first : first + len(contents)] = contents
            self.memory.append(memory)

    def run(self) -> None:
        """Run all phases and check the result."""
        for number, phase in enumerate(self.phased.phases):
            if isinstance(phase, CallPhase):
                name = f"{self.where}phase {number}"
                self._check_operands(phase, name)
                for members in groups(self.phased, phase):
                    for call in range(phase.calls):
                        self._call(phase, members, call, name)
            else:
                self._run_statements(number, phase.statements)
        for rank in range(self.phased.ranks):
            self._check_result(rank)

    def proof(self, *, in_place: bool) -> Proof:
        """Return what a run has shown."""
        if self.phased.is_uniform:
            return Proof(in_place, self.phased.collective.reduces)
        averages = bool(self.completing) and self.is_whole
        return Proof(in_place, averages, frozenset(self.completing if averages else ()))

    def _run_statements(self, number: int, statements: Statements) -> None:
        name = f"{self.where}{name_of(number)}"
        for at, statement in enumerate(statements):
            values = self._read(statement.src, name)
            if statement.operand is not None:
                pairs = zip(values, self._read(statement.operand, name), strict=True)
                values = [_added(pair, name) for pair in pairs]
                complete = {value.ranks == self.everyone for value in values}
                if True in complete:
                    self.completing.add((number, at))
                    self.is_whole &= False not in complete
            self._check_shape(statement.dst, values)
            self._write(statement.dst, values)

    def _check_shape(self, target: Chunk, values: Sequence[Sum]) -> None:
        """Check that the output keeps chunks in places of their length.

        The last chunk of a part may be shorter than the others.
        """
        if target.buffer is not Buffer.OUTPUT:
            return
        part = self.phased.chunks
        for place, value in enumerate(values, start=target.offset):
            if place % part != value.chunk % part:
                raise NoProgramError(
                    f"rank {target.rank} keeps chunk {value.chunk} in the place of chunk {place}"
                )

    def _call(self, phase: CallPhase, members: Sequence[int], call: int, name: str) -> None:
        group = len(members)
        source, target = phase.source, phase.target
        first, length = source.chunk + call * phase.source_stride, phase.source_chunks(group)
        sources = [self._read(Chunk(rank, source.buffer, first, length), name) for rank in members]
        first = target.chunk + call * phase.target_stride
        results = received(phase, sources, lambda parts: _added(parts, name, alike=True))
        for rank, values in zip(members, results, strict=True):
            self._write(Chunk(rank, target.buffer, first), values)

    def _write(self, target: Chunk, values: Sequence[Sum]) -> None:
        at = self.bases[target.rank][target.buffer] + target.offset
        self.memory[target.rank][at : at + len(values)] = values

    def _read(self, source: Chunk, name: str) -> list[Sum]:
        at = self.bases[source.rank][source.buffer] + source.offset
        found = self.memory[source.rank][at : at + source.count]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            raise NoProgramError(
                f"{name} reads a chunk of rank {source.rank} that nothing has written"
            )
        return values

    def _check_operands(self, phase: CallPhase, name: str) -> None:
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
            can_share = phase.collective.has_place and not phase.collective.has_root
            allowed = target
            if phase.collective.input_is_part:
                allowed += offset
            elif phase.collective.output_is_part:
                allowed -= offset
            apart = phase.calls == 1 or phase.source_stride >= max(lengths)
            if not can_share or source != allowed or spans[0] != spans[1] or not apart:
                raise NoProgramError(f"{name} reads what it writes on rank {rank}")

    def _check_result(self, rank: int) -> None:
        phased = self.phased
        wanted = postcondition(
            phased.collective, phased.ranks, phased.larger_chunks, rank, phased.root
        )
        first = self.bases[rank][Buffer.OUTPUT]
        found = self.memory[rank][first : first + phased.chunks_of(Buffer.OUTPUT, rank)]
        for chunk, (value, result) in enumerate(zip(wanted, found, strict=True)):
            if result != value:
                held = "nothing" if result is None else _named(result)
                raise NoProgramError(
                    f"{self.where}chunk {chunk} of rank {rank}'s output holds {held} instead of "
                    f"{_named(value)}"
                )


def _place_of(phased: PhasedSchedule, phase: CallPhase, rank: int) -> int:
    node, local = divmod(rank, phased.local_ranks)
    return {PhaseKind.LOCAL: local, PhaseKind.RAIL: node}.get(phase.kind, 0)


def _added(parts: Sequence[Sum], name: str, *, alike: bool = False) -> Sum:
    """Return the sum of parts, which with `alike` must hold equally many ranks."""
    chunk, ranks = parts[0]
    size = ranks.bit_count()
    for part in parts[1:]:
        unlike = part.chunk != chunk or (alike and part.ranks.bit_count() != size)
        if unlike or part.ranks & ranks:
            raise NoProgramError(f"{name} adds {_named(parts[0])} and {_named(part)}")
        ranks |= part.ranks
    return Sum(chunk, ranks)


def _named(part: Sum) -> str:
    ranks = part.ranks.bit_count()
    lowest = (part.ranks & -part.ranks).bit_length() - 1
    of = f"rank {lowest}" if ranks == 1 else f"{ranks} ranks"
    return f"input chunk {part.chunk} of {of}"
