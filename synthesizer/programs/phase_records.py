"""Phased schedules as records of a program, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lookup_tables.bundle_layout import ALGORITHMS, OPERATIONS, PROTOCOLS
from lookup_tables.table import BuiltinConfig, Operation
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.layout import (
    ADDS,
    AVERAGES,
    BUFFERS,
    COMPLETES,
    IS_UNIFORM,
    RUNS_IN_PLACE,
    Pattern,
    PhaseKind,
    PhaseRecord,
    RankRecord,
    Records,
    StatementRecord,
)
from synthesizer.programs.phases import (
    CallPhase,
    Phase,
    PhasedSchedule,
    Place,
    StatementPhase,
    Statements,
)
from synthesizer.programs.proof import Proof


def records_of(phased: PhasedSchedule, proof: Proof) -> Records:
    """Return the records of a schedule whose numbers are within the limits."""
    nodes = (0,) if phased.is_uniform else phased.node_of_rank()
    flags = RUNS_IN_PLACE * proof.in_place | AVERAGES * proof.averages
    return Records(
        operation=_code(phased.collective),
        flags=flags | IS_UNIFORM * phased.is_uniform,
        root=phased.root,
        ranks=phased.ranks,
        nodes=phased.nodes,
        chunks=phased.chunks,
        lanes=phased.lanes,
        rank_records=tuple(map(RankRecord, nodes, phased.scratch_chunks)),
        phases=tuple(_phase_records(phased.phases)),
        statements=tuple(
            _statement_record(statement, completes=(number, at) in proof.completing)
            for number, phase in enumerate(phased.phases)
            if isinstance(phase, StatementPhase)
            for at, statement in enumerate(phase.statements)
        ),
    )


def schedule_of(records: Records) -> PhasedSchedule:
    """Return the schedule of a program with phases, without a name.

    Raises:
        ValueError: A code is unknown, or numbers of records contradict each other.
        IndexError: As ValueError.
    """
    nodes = records.nodes
    if not 1 <= nodes <= records.ranks:
        raise ValueError(f"{nodes} nodes of {records.ranks} ranks")
    sizes = [records.ranks // nodes] * nodes
    if not records.flags & IS_UNIFORM:
        sizes = [0] * nodes
        for rank in records.rank_records:
            sizes[rank.node] += 1
    statements = tuple(map(_statement, records.statements))
    return PhasedSchedule(
        name="",
        collective=_collective(records.operation),
        node_sizes=tuple(sizes),
        chunks=records.chunks,
        scratch_chunks=tuple(rank.scratch_chunks for rank in records.rank_records),
        phases=tuple(_phase(record, statements) for record in records.phases),
        root=records.root,
        lanes=records.lanes,
    )


def _code(collective: Collective) -> int:
    return OPERATIONS.index(Operation(collective.value))


def _collective(code: int) -> Collective:
    return Collective(OPERATIONS[code].value)


def _phase_records(phases: Iterable[Phase]) -> Iterator[PhaseRecord]:
    first = 0
    for phase in phases:
        if isinstance(phase, StatementPhase):
            yield PhaseRecord(phase.kind, source=first, chunks=len(phase.statements))
            first += len(phase.statements)
            continue
        source, target = phase.source, phase.target
        yield PhaseRecord(
            *(phase.kind, _code(phase.collective)),
            *(BUFFERS.index(source.buffer), BUFFERS.index(target.buffer)),
            *(source.chunk, target.chunk, phase.chunks, phase.repeats),
            *(phase.source_stride, phase.target_stride, phase.pattern, *_rail_codes(phase.rail)),
        )


def _phase(record: PhaseRecord, statements: Statements) -> Phase:
    kind = PhaseKind(record.kind)
    if kind in {PhaseKind.STAGE, PhaseKind.ROUND}:
        own = statements[record.source : record.source + record.chunks]
        return StatementPhase(kind, own)
    if kind is PhaseKind.STEPS:
        raise ValueError("steps are the only phase of their program")
    return CallPhase(
        kind=kind,
        collective=_collective(record.operation),
        source=Place(BUFFERS[record.source_buffer], record.source),
        target=Place(BUFFERS[record.target_buffer], record.target),
        chunks=record.chunks,
        repeats=record.repeats,
        source_stride=record.source_stride,
        target_stride=record.target_stride,
        pattern=Pattern(record.pattern),
        rail=_rail(record),
    )


def _rail_codes(rail: BuiltinConfig | None) -> tuple[int, int, int]:
    if rail is None:
        return (0, 0, 0)
    return (ALGORITHMS.index(rail.algorithm) + 1, PROTOCOLS.index(rail.protocol), rail.nchannels)


def _rail(record: PhaseRecord) -> BuiltinConfig | None:
    codes = (record.rail_algorithm, record.rail_protocol, record.rail_nchannels)
    if codes == (0, 0, 0):
        return None
    if record.rail_algorithm == 0:
        raise ValueError("a rail has a protocol or channels without an algorithm")
    algorithm, protocol = ALGORITHMS[record.rail_algorithm - 1], PROTOCOLS[record.rail_protocol]
    return BuiltinConfig(algorithm, protocol, record.rail_nchannels)


def _statement_record(statement: Statement, *, completes: bool) -> StatementRecord:
    src, dst, operand = statement.src, statement.dst, statement.operand
    flags = ADDS * (operand is not None) | COMPLETES * completes
    # Without an operand its fields are 0, so that equal statements have equal bytes.
    return StatementRecord(
        *(flags, BUFFERS.index(src.buffer), BUFFERS.index(dst.buffer)),
        BUFFERS.index(operand.buffer) if operand else 0,
        *(src.offset, dst.offset, operand.offset if operand else 0),
        *(src.rank, dst.rank, dst.count),
    )


def _statement(record: StatementRecord) -> Statement:
    operand = None
    if record.flags & ADDS:
        buffer = BUFFERS[record.operand_buffer]
        operand = Chunk(record.target_rank, buffer, record.operand, record.chunks)
    return Statement(
        Chunk(record.source_rank, BUFFERS[record.source_buffer], record.source, record.chunks),
        Chunk(record.target_rank, BUFFERS[record.target_buffer], record.target, record.chunks),
        operand,
        0,
    )
