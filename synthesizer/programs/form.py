"""The rules of the form of phased schedules, which compiler and C loader check alike.

A schedule that keeps them cannot make an executor reach outside a buffer, write to the caller's
input, give a call operands that NCCL does not allow, wait for ever, or use a chunk in a round while
it is sent or received. `tuccl/runtime/program_phases.c` and `program_statements.c` have the same
rules. They say nothing of the result: `synthesizer.programs.proof` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from lookup_tables.collective import Collective
from lookup_tables.program_header import MOST_KERNEL_RANKS, MOST_RANKS
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Statement
from synthesizer.programs.layout import (
    BUFFERS,
    MOST_CHUNKS,
    MOST_CHUNKS_MOVED,
    MOST_LANES,
    MOST_NODES,
    MOST_PHASES,
    MOST_ROUNDS,
    Pattern,
    PhaseKind,
)
from synthesizer.programs.phases import CallPhase, PhasedSchedule, StatementPhase, Statements
from tuccl.errors import NoProgramError

_LEAST_NODES = 2
_LEAST_SUMMANDS = 2
MOST_RAIL_CHANNELS = 64


def check_form(phased: PhasedSchedule) -> None:
    """Check a schedule against the rules of the form.

    Raises:
        NoProgramError: It breaks one; the message says which.
    """
    _check_numbers(phased)
    if phased.is_uniform:
        _check_uniform(phased)
    else:
        _check_statements(phased)


def _check_numbers(phased: PhasedSchedule) -> None:
    collective, sizes = phased.collective, phased.node_sizes
    if collective is Collective.CUSTOM:
        raise NoProgramError("a custom operation has no known result to keep")
    if not (_LEAST_NODES <= len(sizes) <= MOST_NODES and 1 <= min(sizes) <= max(sizes)):
        raise NoProgramError(f"{len(sizes)} nodes, allowed are {_LEAST_NODES} to {MOST_NODES}")
    if max(sizes) > MOST_RANKS:
        raise NoProgramError(f"a node has {max(sizes)} ranks, at most {MOST_RANKS} are allowed")
    if not (phased.chunks >= 1 and phased.larger_chunks <= MOST_CHUNKS):
        raise NoProgramError(f"{phased.larger_chunks} chunks, allowed are 1 to {MOST_CHUNKS}")
    scratch = phased.scratch_chunks
    records = 1 if phased.is_uniform else phased.ranks
    if len(scratch) != records or not 0 <= min(scratch) <= max(scratch) <= MOST_CHUNKS:
        raise NoProgramError(f"a rank has more than {MOST_CHUNKS} scratch chunks, or less than 0")
    if not 0 <= phased.root < (phased.ranks if collective.has_root else 1):
        raise NoProgramError(f"root {phased.root} of {collective} on {phased.ranks} ranks")
    if not 1 <= len(phased.phases) <= MOST_PHASES:
        raise NoProgramError(f"{len(phased.phases)} phases, allowed are 1 to {MOST_PHASES}")
    if not 1 <= phased.lanes <= MOST_LANES:
        raise NoProgramError(f"{phased.lanes} lanes, allowed are 1 to {MOST_LANES}")


def _check_uniform(phased: PhasedSchedule) -> None:
    if not _kernels(phased.collective):
        raise NoProgramError(f"{phased.collective} has no uniform schedules")
    if len(set(phased.node_sizes)) > 1 or len(phased.calls) != len(phased.phases):
        raise NoProgramError("its nodes differ in size, or it has stages or rounds")
    if phased.collective.divides and phased.chunks > 1:
        raise NoProgramError(f"{phased.chunks} chunks of a rank's part, allowed is 1")
    for number, phase in enumerate(phased.calls):
        fault = (
            _fault_of_kind(phased, phase)
            or _fault_of_numbers(phase)
            or _fault_of_places(phased, phase)
        )
        if fault:
            raise NoProgramError(f"phase {number} {fault}")


def _kernels(collective: Collective) -> set[Pattern]:
    """Return a node's kernels for a call of a uniform schedule; none if there are no such calls."""
    if collective.has_root or collective is Collective.CUSTOM:
        return set()
    if collective is Collective.ALL_REDUCE:
        return {Pattern.ONE_PHASE, Pattern.TWO_PHASE}
    return {Pattern.DIRECT}


def _fault_of_kind(phased: PhasedSchedule, phase: CallPhase) -> str:
    if phase.kind is PhaseKind.SUM:
        known = phase.collective is Collective.REDUCE and phase.pattern is Pattern.NONE
    elif phase.kind is PhaseKind.RAIL:
        known = bool(_kernels(phase.collective)) and phase.pattern is Pattern.NONE
    else:
        known = phase.pattern in _kernels(phase.collective)
        if phased.local_ranks == 1:
            return "is a node's, and nodes have one rank"
        if phased.local_ranks > MOST_KERNEL_RANKS:
            return f"is run by kernels for {MOST_KERNEL_RANKS} ranks of a node and fewer"
    asks = phase.kind is PhaseKind.RAIL and phase.collective.asks_tuner
    if phase.rail is not None and not (asks and 0 <= phase.rail.nchannels <= MOST_RAIL_CHANNELS):
        return "has a configuration of a rail that NCCL does not take"
    if not known:
        return f"cannot be {phase.collective} with pattern {phase.pattern.name}"
    if phase.collective.reduces and not phased.collective.reduces:
        return f"adds, but {phased.collective} does not"
    return ""


def _fault_of_numbers(phase: CallPhase) -> str:
    strides = (phase.source_stride, phase.target_stride)
    numbers = (phase.source.chunk, phase.target.chunk, *strides)
    if min(*numbers, phase.chunks - 1, phase.repeats - 1) < 0:
        return "has a negative number, or nothing to do"
    if max(*numbers, phase.chunks, phase.repeats) > MOST_CHUNKS:
        return f"has a number above {MOST_CHUNKS}"
    if phase.calls == 1 and strides != (0, 0):
        return "has strides, and is one call"
    if phase.kind is PhaseKind.SUM and phase.repeats < _LEAST_SUMMANDS:
        return "has one summand"
    return ""


def _fault_of_places(phased: PhasedSchedule, phase: CallPhase) -> str:
    group, last = phased.group(phase), phase.calls - 1
    target_chunks = phase.target_chunks(group)
    source_end = phase.source.chunk + last * phase.source_stride + phase.source_chunks(group)
    target_end = phase.target.chunk + last * phase.target_stride + target_chunks
    if source_end > phased.chunks_of(phase.source.buffer):
        return f"reads {source_end} chunks of buffer {phase.source.buffer}"
    if target_end > phased.chunks_of(phase.target.buffer):
        return f"writes {target_end} chunks of buffer {phase.target.buffer}"
    if phase.target.buffer is Buffer.INPUT:
        return "writes to the input"
    if last and phase.target_stride < target_chunks:
        return "has calls that write the same chunks"
    apart = source_end <= phase.target.chunk or target_end <= phase.source.chunk
    shared = phase.source.buffer is phase.target.buffer and not apart
    return "reads what it writes" if shared and not _is_in_place(phase) else ""


def _is_in_place(phase: CallPhase) -> bool:
    """Return whether each call has one buffer on all ranks, as NCCL allows for all_reduce."""
    return (
        phase.collective is Collective.ALL_REDUCE
        and phase.source == phase.target
        and phase.source_stride == phase.target_stride
    )


def _check_statements(phased: PhasedSchedule) -> None:
    turn = [(PhaseKind.STAGE, PhaseKind.ROUND)[i % 2] for i in range(len(phased.phases))]
    if [phase.kind for phase in phased.phases] != turn or len(turn) % 2 == 0 or len(turn) == 1:
        raise NoProgramError(
            f"{len(phased.rounds)} rounds and {len(phased.stages)} stages that do not take turns; "
            f"allowed are 1 to {MOST_ROUNDS} rounds"
        )
    nodes = phased.node_of_rank()
    sizes = [
        {buffer: phased.chunks_of(buffer, rank) for buffer in BUFFERS}
        for rank in range(phased.ranks)
    ]
    layouts = [
        [phased.addresses(rank, in_place=in_place) for rank in range(phased.ranks)]
        for in_place in (False, True)[: 1 + phased.must_run_in_place]
    ]
    moved = 0
    for number, phase in enumerate(phased.phases):
        if isinstance(phase, StatementPhase):
            name = name_of(number)
            for statement in phase.statements:
                fault = _fault_of_ranks(
                    statement, nodes, is_round=phase.kind is PhaseKind.ROUND
                ) or _fault_of_operands(phased.collective, statement, sizes)
                if fault:
                    raise NoProgramError(f"{name} {fault}")
                moved += statement.dst.count
            for addresses in layouts if phase.kind is PhaseKind.ROUND else ():
                _check_round(phase.statements, nodes, addresses, name)
    if moved > MOST_CHUNKS_MOVED:
        raise NoProgramError(f"{moved} chunks are moved, at most {MOST_CHUNKS_MOVED} are allowed")


def name_of(number: int) -> str:
    """Return the name of a stage or round by the number of its phase."""
    return f"round {(number + 1) // 2}" if number % 2 else f"stage {number // 2}"


def _fault_of_ranks(statement: Statement, nodes: Sequence[int], *, is_round: bool) -> str:
    src, dst = statement.src.rank, statement.dst.rank
    if not (0 <= src < len(nodes) and 0 <= dst < len(nodes)):
        return f"has a message from rank {src} to rank {dst}"
    crosses = nodes[src] != nodes[dst]
    if is_round and crosses and statement.operand is not None:
        return "adds to a chunk of another node"
    return "has a message to another node" if crosses and not is_round else ""


def _fault_of_operands(
    collective: Collective, statement: Statement, sizes: Sequence[dict[Buffer, int]]
) -> str:
    src, dst, operand = statement.src, statement.dst, statement.operand
    if dst.buffer is Buffer.INPUT:
        return "writes to the input"
    if operand is not None:
        if not collective.reduces:
            return f"adds, but {collective} does not"
        if operand.rank != dst.rank or (src.rank == dst.rank and operand != dst):
            return "adds to a chunk that is not its target"
    for chunk in (src, dst, *([] if operand is None else [operand])):
        size = sizes[chunk.rank][chunk.buffer]
        if chunk.count != dst.count or chunk.count < 1:
            return f"has operands of {chunk.count} and {dst.count} chunks"
        if not 0 <= chunk.offset <= size - chunk.count:
            return f"uses chunks behind the {size} of buffer {chunk.buffer} of rank {chunk.rank}"
    return ""


class _Use(IntEnum):
    """What a round does with a chunk."""

    SENT = 0
    RECEIVED = 1
    READ = 2
    """By a statement beside its messages."""
    WRITTEN = 3


_EXCLUDED = {
    _Use.SENT: (_Use.RECEIVED, _Use.WRITTEN),
    _Use.RECEIVED: tuple(_Use),
    _Use.READ: (_Use.RECEIVED,),
    _Use.WRITTEN: (_Use.SENT, _Use.RECEIVED),
}


def _check_round(
    statements: Statements,
    nodes: Sequence[int],
    addresses: Sequence[dict[Buffer, int]],
    name: str,
) -> None:
    """Check that what a round sends is not written, and what it receives not used otherwise."""
    previous = -1
    ends = [0] * len(_Use)
    for rank, first, after, use in sorted(_uses(statements, nodes, addresses)):
        if rank != previous:
            previous, ends = rank, [0] * len(_Use)
        if any(first < ends[other] for other in _EXCLUDED[use]):
            raise NoProgramError(f"{name} uses a chunk of rank {rank} that it receives or sends")
        ends[use] = max(ends[use], after)


def _uses(
    statements: Statements, nodes: Sequence[int], addresses: Sequence[dict[Buffer, int]]
) -> Iterator[tuple[int, int, int, _Use]]:
    """Yield rank, first address, end, and use of each operand."""
    for statement in statements:
        src, dst, operand = statement.src, statement.dst, statement.operand
        crosses = nodes[src.rank] != nodes[dst.rank]
        used = [(src, _Use.SENT if crosses else _Use.READ)]
        used += [(dst, _Use.RECEIVED if crosses else _Use.WRITTEN)]
        used += [] if operand is None else [(operand, _Use.READ)]
        found = [
            (
                chunk.rank,
                first := addresses[chunk.rank][chunk.buffer] + chunk.offset,
                first + chunk.count,
                use,
            )
            for chunk, use in used
        ]
        # In place a chunk may be copied onto itself, which does nothing.
        if operand is not None or found[0][:2] != found[1][:2]:
            yield from found
