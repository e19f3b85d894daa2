"""The rules of the form of phased schedules, which compiler and C loader check alike.

What keeps them (`tuccl/runtime/phased.c` has the same rules) cannot make an executor reach outside
a buffer, write to the caller's input, or give a call operands that NCCL does not allow. The rules
say nothing of the result: `synthesizer.programs.phase_proof` does.
"""

from __future__ import annotations

from lookup_tables.program_header import MOST_RANKS
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.programs.layout import Pattern
from synthesizer.programs.phase_layout import MOST_CHUNKS, MOST_LANES, MOST_NODES, MOST_PHASES
from synthesizer.programs.phases import Phase, PhasedSchedule, PhaseKind
from tuccl.errors import NoProgramError

REDUCING = frozenset({Collective.ALL_REDUCE, Collective.REDUCE_SCATTER})
"""Operations of phased schedules that reduce."""
_OPERATIONS = REDUCING | {Collective.ALL_GATHER, Collective.ALLTOALL}
_PATTERNS = {
    Collective.ALL_REDUCE: {Pattern.ONE_PHASE, Pattern.TWO_PHASE},
    Collective.ALL_GATHER: {Pattern.DIRECT},
    Collective.REDUCE_SCATTER: {Pattern.DIRECT},
    Collective.ALLTOALL: {Pattern.DIRECT},
}
"""Kernels of a node's collectives."""
_LEAST_SUMMANDS = 2
MOST_RAIL_CHANNELS = 64


def check_form(phased: PhasedSchedule) -> None:
    """Check a schedule against the rules of the form.

    Raises:
        NoProgramError: It breaks one; the message says which.
    """
    if phased.collective not in _OPERATIONS:
        raise NoProgramError(f"{phased.collective} has no phased schedules")
    if not (2 <= phased.nodes <= MOST_NODES and 1 <= phased.local_ranks <= MOST_RANKS):
        raise NoProgramError(
            f"{phased.nodes} nodes of {phased.local_ranks} ranks, an executor serves 2 to "
            f"{MOST_NODES} nodes of 1 to {MOST_RANKS}"
        )
    _check_buffers(phased)
    if not 1 <= len(phased.phases) <= MOST_PHASES:
        raise NoProgramError(f"{len(phased.phases)} phases, allowed are 1 to {MOST_PHASES}")
    if not 1 <= phased.lanes <= MOST_LANES:
        raise NoProgramError(f"{phased.lanes} lanes, allowed are 1 to {MOST_LANES}")
    for number, phase in enumerate(phased.phases):
        fault = (
            _fault_of_kind(phased, phase)
            or _fault_of_numbers(phase)
            or _fault_of_places(phased, phase)
        )
        if fault:
            raise NoProgramError(f"phase {number} {fault}")


def _check_buffers(phased: PhasedSchedule) -> None:
    ranks, chunks = phased.ranks, (phased.input_chunks, phased.output_chunks)
    wanted = {
        Collective.ALL_REDUCE: (phased.input_chunks, phased.input_chunks),
        Collective.ALL_GATHER: (1, ranks),
        Collective.REDUCE_SCATTER: (ranks, 1),
        Collective.ALLTOALL: (ranks, ranks),
    }[phased.collective]
    if chunks != wanted or min(chunks) < 1 or phased.scratch_chunks < 0:
        raise NoProgramError(
            f"{phased.collective} of {ranks} ranks cannot have {chunks[0]} chunks of input, "
            f"{chunks[1]} of output and {phased.scratch_chunks} of scratch memory"
        )
    if max(*chunks, phased.scratch_chunks) > MOST_CHUNKS:
        raise NoProgramError(f"a buffer has more than {MOST_CHUNKS} chunks")


def _fault_of_kind(phased: PhasedSchedule, phase: Phase) -> str:
    if phase.kind is PhaseKind.SUM:
        known = phase.collective is Collective.REDUCE and phase.pattern is Pattern.NONE
    elif phase.kind is PhaseKind.RAIL:
        known = phase.collective in _OPERATIONS and phase.pattern is Pattern.NONE
    else:
        known = phase.pattern in _PATTERNS.get(phase.collective, set())
        if phased.local_ranks == 1:
            return "is a node's, and nodes have one rank"
    asks = phase.kind is PhaseKind.RAIL and phase.collective is not Collective.ALLTOALL
    if phase.rail is not None and not (asks and 0 <= phase.rail.nchannels <= MOST_RAIL_CHANNELS):
        return "has a configuration of a rail that NCCL does not take"
    if not known:
        return f"cannot be {phase.collective} with pattern {phase.pattern.name}"
    reduces = phase.kind is PhaseKind.SUM or phase.collective in REDUCING
    if reduces and phased.collective not in REDUCING:
        return f"adds, but {phased.collective} does not"
    return ""


def _fault_of_numbers(phase: Phase) -> str:
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


def _fault_of_places(phased: PhasedSchedule, phase: Phase) -> str:
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


def _is_in_place(phase: Phase) -> bool:
    """Return whether each call has one buffer on all ranks, as NCCL allows for all_reduce."""
    return (
        phase.collective is Collective.ALL_REDUCE
        and phase.source == phase.target
        and phase.source_stride == phase.target_stride
    )
