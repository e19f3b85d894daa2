"""Programs as bytes: written, and read back with a refusal of whatever is not exactly so.

The reader takes the records apart, runs the program on symbols and writes it again: bytes that
differ from that contradict themselves. The C reader (`tuccl/runtime/program.c`) checks the same
rules but for what the program computes and for the content address.
"""

from __future__ import annotations

import hashlib
import struct
import zlib

from lookup_tables.bundle_layout import OPERATIONS
from lookup_tables.errors import ScheduleTextError, TableFileError
from lookup_tables.programs import program_layout as layout
from lookup_tables.programs.program_flow import Flow, StepPlace, run_program
from lookup_tables.programs.program_layout import BufferCode, StepCode
from lookup_tables.programs.program_model import (
    Place,
    Program,
    ProgramBlock,
    ProgramStep,
    RankProgram,
)
from lookup_tables.programs.program_pattern import pattern_of


def program_bytes(program: Program) -> bytes:
    """The compiled program.

    Raises:
        ScheduleTextError: The program does not compute its operation, or is beyond a limit.
    """
    flow = run_program(program)
    blocks = [block for rank in program.ranks for block in rank.blocks]
    body = b"".join(
        [
            _pack_ranks(program),
            _pack_blocks(program),
            *(_pack_steps(program, rank, flow) for rank in range(len(program.ranks))),
        ]
    )
    total = layout.HEADER.size + len(body)
    if total > layout.MOST_BYTES:
        raise ScheduleTextError(f"it takes {total} bytes, {layout.MOST_BYTES} are the most")
    messages = [s.count for b in blocks for s in b.steps if s.code.sends]
    flags = layout.RUNS_IN_PLACE * program.in_place | layout.AVERAGES * flow.divisible
    fields = (
        *(OPERATIONS.index(program.operation), pattern_of(program, flow), flags, program.root),
        *(len(program.ranks), program.chunks_per_loop),
        *(len(blocks), sum(len(block.steps) for block in blocks)),
        max(len(rank.blocks) for rank in program.ranks),
        max(len(rank.arriving) for rank in program.ranks),
        *(max(messages, default=0), max((len(block.steps) for block in blocks), default=0)),
        *(max(rank.scratch_chunks for rank in program.ranks), 0),
    )
    head = layout.HEADER.pack(
        layout.MAGIC, layout.VERSION, 0, bytes(layout.HASH_BYTES), total, 0, *fields
    )
    hashed = (head + body)[layout.HASHED_FROM :]
    address = hashlib.sha256(hashed).digest()[: layout.HASH_BYTES]
    sealed = head[: layout.CRC_OFFSET + layout.CRC_BYTES] + address + hashed
    crc = struct.pack("<I", program_crc(sealed))
    return sealed[: layout.CRC_OFFSET] + crc + sealed[layout.CRC_OFFSET + layout.CRC_BYTES :]


def program_crc(data: bytes) -> int:
    """CRC-32 (zlib's polynomial) over all of a program but its CRC field."""
    head = zlib.crc32(data[: layout.CRC_OFFSET])
    return zlib.crc32(data[layout.CRC_OFFSET + layout.CRC_BYTES :], head)


def _pack_ranks(program: Program) -> bytes:
    records, first = [], 0
    for rank in program.ranks:
        numbers = (first, len(rank.blocks), len(rank.arriving), rank.scratch_chunks)
        records.append(layout.RANK.pack(*numbers))
        first += len(rank.blocks)
    return b"".join(records)


def _pack_blocks(program: Program) -> bytes:
    records, first = [], 0
    for number, rank in enumerate(program.ranks):
        for block in rank.blocks:
            outgoing = incoming = layout.NO_CONNECTION
            if block.send_peer != layout.NO_PEER:
                at_peer = program.ranks[block.send_peer].arriving
                outgoing = at_peer.index((number, block.channel))
            if block.receive_peer != layout.NO_PEER:
                incoming = rank.arriving.index((block.receive_peer, block.channel))
            peers = (block.send_peer, block.receive_peer, block.channel, 0)
            steps = (first, len(block.steps), 0)
            records.append(layout.THREADBLOCK.pack(*peers, outgoing, incoming, *steps))
            first += len(block.steps)
    return b"".join(records)


def _pack_steps(program: Program, rank: int, flow: Flow) -> bytes:
    blocks = program.ranks[rank].blocks
    awaited = {step.depends for block in blocks for step in block.steps}
    return b"".join(
        _pack_step(step, (rank, number, at), awaited, flow)
        for number, block in enumerate(blocks)
        for at, step in enumerate(block.steps)
    )


def _pack_step(
    step: ProgramStep, place: StepPlace, awaited: set[tuple[int, int] | None], flow: Flow
) -> bytes:
    flags = layout.HAS_DEPENDENT * (place[1:] in awaited)
    flags |= layout.COMPLETES * (flow.divisible and place in flow.completing)
    depends = step.depends or (layout.NO_DEPENDENCE, 0)
    codes = (step.code, step.src.buffer, step.dst.buffer, flags)
    return layout.STEP.pack(*codes, step.src.offset, step.dst.offset, step.count, *depends)


def read_program(data: bytes, source: str) -> Program:
    """The program that some bytes hold.

    Raises:
        TableFileError: Damaged, of another version, or it contradicts itself.
    """
    try:
        program = _unpack(data)
        if program_bytes(program) != data:
            raise ValueError("it is not what its steps are written as")
    except (struct.error, ValueError, IndexError, ScheduleTextError) as error:
        raise TableFileError(
            f"{source}: the program is damaged ({error}); write the bundle again with `tuccl ship`"
        ) from error
    return program


def _unpack(data: bytes) -> Program:
    head = layout.HEADER.unpack_from(data)
    if len(data) > layout.MOST_BYTES:
        raise ValueError("it is larger than any program")
    if head[0] != layout.MAGIC or head[1] != layout.VERSION or head[5] != 0:
        raise ValueError("it is of another version, or none at all")
    if head[2] != program_crc(data) or head[4] != len(data):
        raise ValueError("its sum or size is wrong")
    ranks, chunks, blocks, steps = head[10:14]
    if not ranks <= layout.MOST_RANKS:
        raise ValueError(f"{ranks} ranks")
    sizes = (ranks * layout.RANK.size, blocks * layout.THREADBLOCK.size, steps * layout.STEP.size)
    if layout.HEADER.size + sum(sizes) != len(data):
        raise ValueError("its records do not fill it")
    at_blocks = layout.HEADER.size + sizes[0]
    at_steps = at_blocks + sizes[1]
    all_steps = [_unpack_step(raw) for raw in layout.STEP.iter_unpack(data[at_steps:])]
    all_blocks = [
        ProgramBlock(raw[0], raw[1], raw[2], tuple(all_steps[raw[6] : raw[6] + raw[7]]))
        for raw in layout.THREADBLOCK.iter_unpack(data[at_blocks:at_steps])
    ]
    return Program(
        operation=OPERATIONS[head[6]],
        chunks_per_loop=chunks,
        root=head[9],
        in_place=bool(head[8] & layout.RUNS_IN_PLACE),
        ranks=tuple(
            RankProgram(scratch, tuple(all_blocks[first : first + count]))
            for first, count, _, scratch in layout.RANK.iter_unpack(
                data[layout.HEADER.size : at_blocks]
            )
        ),
    )


def _unpack_step(raw: tuple[int, ...]) -> ProgramStep:
    code, src, dst, _, src_offset, dst_offset, count, block, step = raw
    return ProgramStep(
        StepCode(code),
        Place(BufferCode(src), src_offset),
        Place(BufferCode(dst), dst_offset),
        count,
        None if block == layout.NO_DEPENDENCE else (block, step),
    )
