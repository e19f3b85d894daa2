"""Schedules of one node, and phased schedules, as records of a program, and back.

If every rank sends each chunk directly to the ranks that need it, a kernel for that pattern
computes the same result faster than the interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import permutations

from lookup_tables.bundle_layout import ALGORITHMS, PROTOCOLS
from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import MOST_RANKS
from lookup_tables.table import BuiltinConfig
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.ir.contents import Sum, input_chunks, output_chunks
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.flow import Flow, Message, StepPlace, part_chunks
from synthesizer.programs.layout import (
    ADDS,
    AVERAGES,
    BUFFERS,
    COMPLETES,
    HAS_DEPENDENT,
    IS_UNIFORM,
    NO_CONNECTION,
    NO_DEPENDENCE,
    NO_PEER,
    RUNS_IN_PLACE,
    STEP_TYPES,
    Pattern,
    PhaseKind,
    PhaseRecord,
    RankRecord,
    Records,
    StatementRecord,
    StepRecord,
    ThreadblockRecord,
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
        operation=phased.collective.code,
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
        collective=COLLECTIVES[records.operation],
        node_sizes=tuple(sizes),
        chunks=records.chunks,
        scratch_chunks=tuple(rank.scratch_chunks for rank in records.rank_records),
        phases=tuple(_phase(record, statements) for record in records.phases),
        root=records.root,
        lanes=records.lanes,
    )


def _phase_records(phases: Iterable[Phase]) -> Iterator[PhaseRecord]:
    first = 0
    for phase in phases:
        if isinstance(phase, StatementPhase):
            yield PhaseRecord(phase.kind, source=first, chunks=len(phase.statements))
            first += len(phase.statements)
            continue
        source, target = phase.source, phase.target
        yield PhaseRecord(
            *(phase.kind, phase.collective.code),
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
        collective=COLLECTIVES[record.operation],
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


def pattern_of(algorithm: Algorithm, flow: Flow) -> Pattern:
    """Return the pattern of a schedule, from the messages of its symbolic run."""
    if algorithm.collective is not Collective.ALL_REDUCE:
        direct = flow.messages == Counter(_direct(algorithm))
        return Pattern.DIRECT if direct else Pattern.NONE
    if flow.messages == Counter(_one_phase(algorithm)):
        return Pattern.ONE_PHASE
    return Pattern.TWO_PHASE if _is_two_phase(algorithm, flow) else Pattern.NONE


def _own(rank: int, receiver: int, chunk: int) -> Message:
    return Message(rank, receiver, Sum(chunk, 1 << rank))


def _one_phase(algorithm: Algorithm) -> list[Message]:
    return [
        _own(rank, peer, chunk)
        for rank, peer in permutations(range(algorithm.ranks), 2)
        for chunk in range(algorithm.chunks_per_loop)
    ]


def _direct(algorithm: Algorithm) -> list[Message]:
    """Return every rank's own chunks as messages to the ranks that need them."""
    part, messages, collective = part_chunks(algorithm), [], algorithm.collective
    for rank, peer in permutations(range(algorithm.ranks), 2):
        if collective.from_root and rank != algorithm.root:
            continue
        if collective.to_root and peer != algorithm.root:
            continue
        first = peer * part if collective.splits else 0
        messages += [_own(rank, peer, chunk) for chunk in range(first, first + part)]
    return messages


def _is_two_phase(algorithm: Algorithm, flow: Flow) -> bool:
    """Return whether each chunk has an owner that sums all contributions and sends out the sum."""
    ranks = range(algorithm.ranks)
    all_ranks = (1 << algorithm.ranks) - 1
    owner = {m.value.chunk: m.sender for m in flow.messages if m.value.ranks == all_ranks}
    owned = Counter(owner.values())
    if len(owner) != algorithm.chunks_per_loop or len({owned[rank] for rank in ranks}) != 1:
        return False
    expected = [
        message
        for chunk, holder in owner.items()
        for rank in ranks
        if rank != holder
        for message in (
            _own(rank, holder, chunk),
            Message(holder, rank, Sum(chunk, all_ranks)),
        )
    ]
    return flow.messages == Counter(expected)


_NOWHERE = ChunkRef(Buffer.INPUT, 0)


def records_of_steps(algorithm: Algorithm, flow: Flow) -> Records:
    """Return the records of a schedule that passed its symbolic run."""
    averages = flow.divisible and algorithm.collective.reduces
    return Records(
        operation=algorithm.collective.code,
        flags=RUNS_IN_PLACE * algorithm.in_place | AVERAGES * averages,
        root=algorithm.root if algorithm.collective.has_root else 0,
        ranks=algorithm.ranks,
        nodes=1,
        chunks=part_chunks(algorithm),
        rank_records=tuple(_rank_records(algorithm)),
        phases=(PhaseRecord(PhaseKind.STEPS, pattern=pattern_of(algorithm, flow)),),
        threadblocks=tuple(_threadblock_records(algorithm)),
        steps=tuple(step for gpu in algorithm.programs for step in _step_records(gpu, flow)),
    )


def algorithm_of(records: Records) -> Algorithm:
    """Return the schedule of a program with steps, which has no name, protocol or sizes.

    Raises:
        ValueError: A code is unknown, or there are too many ranks.
        IndexError: As ValueError.
    """
    if not 1 <= records.ranks <= MOST_RANKS:
        raise ValueError(f"{records.ranks} ranks")
    steps = [_step(record) for record in records.steps]
    collective = COLLECTIVES[records.operation]
    chunks = records.chunks * collective.parts(records.ranks)
    buffers = (collective, records.ranks, chunks)
    return Algorithm(
        name="",
        collective=collective,
        protocol=Protocol.SIMPLE,
        channels=1 + max((block.channel for block in records.threadblocks), default=0),
        chunks_per_loop=chunks,
        in_place=bool(records.flags & RUNS_IN_PLACE),
        out_of_place=True,
        programs=tuple(
            GpuProgram(
                number,
                input_chunks(*buffers, number, records.root),
                output_chunks(*buffers, number, records.root),
                rank.scratch_chunks,
                tuple(_threadblocks(records, rank, steps)),
            )
            for number, rank in enumerate(records.rank_records)
        ),
        root=records.root,
    )


def _arriving(gpu: GpuProgram) -> list[tuple[int, int]]:
    """Return sender and channel of the connections that arrive at a rank, by number."""
    return [
        (block.recv_peer, block.channel) for block in gpu.threadblocks if block.recv_peer != NO_PEER
    ]


def _rank_records(algorithm: Algorithm) -> Iterator[RankRecord]:
    first = 0
    for gpu in algorithm.programs:
        blocks = len(gpu.threadblocks)
        yield RankRecord(0, gpu.scratch_chunks, first, blocks, len(_arriving(gpu)))
        first += blocks


def _threadblock_records(algorithm: Algorithm) -> Iterator[ThreadblockRecord]:
    first = 0
    for gpu in algorithm.programs:
        for block in gpu.threadblocks:
            outgoing = incoming = NO_CONNECTION
            if block.send_peer != NO_PEER:
                at_peer = _arriving(algorithm.programs[block.send_peer])
                outgoing = at_peer.index((gpu.rank, block.channel))
            if block.recv_peer != NO_PEER:
                incoming = _arriving(gpu).index((block.recv_peer, block.channel))
            peers = (block.send_peer, block.recv_peer, block.channel, 0)
            yield ThreadblockRecord(*peers, outgoing, incoming, first, len(block.steps))
            first += len(block.steps)


def _step_records(gpu: GpuProgram, flow: Flow) -> Iterator[StepRecord]:
    awaited = {step.depends for block in gpu.threadblocks for step in block.steps}
    for block in gpu.threadblocks:
        for at, step in enumerate(block.steps):
            yield _step_record(step, (gpu.rank, block.id, at), awaited, flow)


def _step_record(
    step: Step, place: StepPlace, awaited: set[StepRef | None], flow: Flow
) -> StepRecord:
    flags = HAS_DEPENDENT * (StepRef(*place[1:]) in awaited)
    flags |= COMPLETES * (flow.divisible and place in flow.completing)
    # Unused operands are not packed, so that equal steps have equal bytes.
    src = step.src if step.type.reads_source else _NOWHERE
    dst = step.dst if step.type.writes else _NOWHERE
    count = 1 if step.type is StepType.NOP else step.count
    buffers = (BUFFERS.index(src.buffer), BUFFERS.index(dst.buffer))
    depends = (NO_DEPENDENCE, 0)
    if step.depends is not None:
        depends = (step.depends.threadblock, step.depends.step)
    codes = (STEP_TYPES.index(step.type), *buffers, flags)
    return StepRecord(*codes, src.offset, dst.offset, count, *depends)


def _threadblocks(records: Records, rank: RankRecord, steps: list[Step]) -> Iterator[Threadblock]:
    first = rank.first_threadblock
    for number, block in enumerate(records.threadblocks[first : first + rank.threadblocks]):
        own = steps[block.first_step : block.first_step + block.steps]
        yield Threadblock(number, block.send_peer, block.receive_peer, block.channel, tuple(own))


def _step(record: StepRecord) -> Step:
    depends = None
    if record.awaited_threadblock != NO_DEPENDENCE:
        depends = StepRef(record.awaited_threadblock, record.awaited_step)
    return Step(
        STEP_TYPES[record.type],
        ChunkRef(BUFFERS[record.source_buffer], record.source),
        ChunkRef(BUFFERS[record.target_buffer], record.target),
        record.chunks,
        depends,
    )
