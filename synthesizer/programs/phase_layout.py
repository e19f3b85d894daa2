"""The records of a phased program, shared by compiler and reader.

`tuccl/runtime/phase_layout.h` declares them for C, and docs/reference/bundle-format.md describes
them. All integers are little-endian; every record is a multiple of 8 bytes. The seal is that of any
program (`lookup_tables.program_header`).
"""

from __future__ import annotations

import struct

from lookup_tables import program_header
from lookup_tables.bundle_layout import ALGORITHMS, OPERATIONS, PROTOCOLS
from lookup_tables.table import BuiltinConfig, Operation
from synthesizer.ir.collectives import Collective
from synthesizer.programs.layout import BUFFERS, RUNS_IN_PLACE, Pattern
from synthesizer.programs.phases import Phase, PhasedSchedule, PhaseKind, Place

HEADER = struct.Struct("<8sII8sIIBBBBIIIIIIIII")
"""Fields: as a program's header as far as ranks (the pattern and the root are 0); nodes, local
ranks, chunks of input, output and scratch, phases, lanes, zero."""
PHASE = struct.Struct("<BBBBIIIIIIBBBB")
"""Fields: kind, operation, source buffer, target buffer; source, target, chunks, repeats, source
stride, target stride; pattern; of a rail: algorithm + 1 (0: NCCL's own choice), protocol,
channels."""

MOST_PHASES = 64
MOST_CHUNKS = 1 << 16
"""Most chunks of a buffer: one for each rank of a large communicator."""
MOST_NODES = 1 << 12
MOST_LANES = 8


def packed_phases(phased: PhasedSchedule, *, in_place: bool) -> bytes:
    """Return the phased program of a schedule whose numbers are within the limits.

    Args:
        phased: The schedule.
        in_place: Whether it is right in place, too.
    """
    total = HEADER.size + len(phased.phases) * PHASE.size
    head = HEADER.pack(
        *(program_header.MAGIC, program_header.PHASED_VERSION, 0),
        *(bytes(program_header.HASH_BYTES), total, 0),
        *(_code(phased.collective), Pattern.NONE, RUNS_IN_PLACE * in_place, 0),
        *(phased.ranks, phased.nodes, phased.local_ranks),
        *(phased.input_chunks, phased.output_chunks, phased.scratch_chunks),
        *(len(phased.phases), phased.lanes, 0),
    )
    return program_header.sealed(head + b"".join(map(_packed, phased.phases)))


def unpacked_phases(data: bytes) -> PhasedSchedule:
    """Return the schedule of a phased program, without a name.

    Raises:
        struct.error: The records do not fill the bytes.
        ValueError: A code is unknown.
        IndexError: As ValueError.
    """
    fields = HEADER.unpack_from(data)
    nodes, local_ranks, inputs, outputs, scratch, _, lanes = fields[11:18]
    return PhasedSchedule(
        name="",
        collective=Collective(OPERATIONS[fields[6]].value),
        nodes=nodes,
        local_ranks=local_ranks,
        input_chunks=inputs,
        output_chunks=outputs,
        scratch_chunks=scratch,
        phases=tuple(map(_unpacked, PHASE.iter_unpack(data[HEADER.size :]))),
        lanes=lanes,
    )


def _code(collective: Collective) -> int:
    return OPERATIONS.index(Operation(collective.value))


def _packed(phase: Phase) -> bytes:
    source, target = phase.source, phase.target
    return PHASE.pack(
        *(phase.kind, _code(phase.collective)),
        *(BUFFERS.index(source.buffer), BUFFERS.index(target.buffer)),
        *(source.chunk, target.chunk, phase.chunks, phase.repeats),
        *(phase.source_stride, phase.target_stride, phase.pattern, *_packed_rail(phase.rail)),
    )


def _unpacked(raw: tuple[int, ...]) -> Phase:
    kind, operation, source, target, *numbers, pattern, algorithm, protocol, nchannels = raw
    source_chunk, target_chunk, chunks, repeats, source_stride, target_stride = numbers
    return Phase(
        kind=PhaseKind(kind),
        collective=Collective(OPERATIONS[operation].value),
        source=Place(BUFFERS[source], source_chunk),
        target=Place(BUFFERS[target], target_chunk),
        chunks=chunks,
        repeats=repeats,
        source_stride=source_stride,
        target_stride=target_stride,
        pattern=Pattern(pattern),
        rail=_unpacked_rail(algorithm, protocol, nchannels),
    )


def _packed_rail(rail: BuiltinConfig | None) -> tuple[int, int, int]:
    if rail is None:
        return (0, 0, 0)
    return (ALGORITHMS.index(rail.algorithm) + 1, PROTOCOLS.index(rail.protocol), rail.nchannels)


def _unpacked_rail(algorithm: int, protocol: int, nchannels: int) -> BuiltinConfig | None:
    if (algorithm, protocol, nchannels) == (0, 0, 0):
        return None
    if algorithm == 0:
        raise ValueError("a rail has a protocol or channels without an algorithm")
    return BuiltinConfig(ALGORITHMS[algorithm - 1], PROTOCOLS[protocol], nchannels)
