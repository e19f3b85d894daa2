"""Reader of programs as schedules, which refuses any inconsistency.

The reader unpacks the records, runs the schedule symbolically and compiles it again: bytes that
differ from the result are refused. The C loader (`tuccl/runtime/program.c`) checks the same rules
except the computed result and the content address.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lookup_tables import program_header as header
from lookup_tables.bundle_layout import OPERATIONS
from synthesizer.ir.algorithm import (
    Algorithm,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    Threadblock,
)
from synthesizer.ir.collectives import Collective, input_chunks, output_chunks
from synthesizer.programs import layout
from synthesizer.programs.compiler import packed
from tuccl.errors import NoProgramError, TableError


def read_program(data: bytes, source: str) -> Algorithm:
    """Return the schedule of a program, which has no name, protocol or sizes.

    Raises:
        TableError: The program is damaged, of another version, or inconsistent.
    """
    try:
        header.check_seal(data)
        if header.is_phased(data):
            raise ValueError("it has phases")
        if header.is_staged(data):
            raise ValueError("it has stages")
        algorithm = _unpack(data)
        if packed(algorithm) != data:
            raise ValueError("its bytes differ from those of its steps")
    except (struct.error, ValueError, IndexError, NoProgramError) as error:
        raise TableError(
            f"{source}: the program is damaged ({error}); write the bundle again with `tuccl ship`"
        ) from error
    return algorithm


def _unpack(data: bytes) -> Algorithm:
    head = header.HEADER.unpack_from(data)
    ranks, chunks, blocks, steps = head[10:14]
    if not 1 <= ranks <= header.MOST_RANKS:
        raise ValueError(f"{ranks} ranks")
    sizes = (ranks * layout.RANK.size, blocks * layout.THREADBLOCK.size, steps * layout.STEP.size)
    if header.HEADER.size + sum(sizes) != len(data):
        raise ValueError("its size is not that of its records")
    at_blocks = header.HEADER.size + sizes[0]
    at_steps = at_blocks + sizes[1]
    all_steps = [_unpack_step(raw) for raw in layout.STEP.iter_unpack(data[at_steps:])]
    all_blocks = list(layout.THREADBLOCK.iter_unpack(data[at_blocks:at_steps]))
    collective = Collective(OPERATIONS[head[6]].value)
    buffers = (collective, ranks, chunks)
    raw_ranks = layout.RANK.iter_unpack(data[header.HEADER.size : at_blocks])
    return Algorithm(
        name="",
        collective=collective,
        protocol=Protocol.SIMPLE,
        channels=1 + max((raw[2] for raw in all_blocks), default=0),
        chunks_per_loop=chunks,
        in_place=bool(head[8] & layout.RUNS_IN_PLACE),
        out_of_place=True,
        programs=tuple(
            GpuProgram(
                rank,
                input_chunks(*buffers, rank, head[9]),
                output_chunks(*buffers, rank, head[9]),
                scratch,
                tuple(_unpack_blocks(all_blocks[first : first + count], all_steps)),
            )
            for rank, (first, count, _, scratch) in enumerate(raw_ranks)
        ),
        root=head[9],
    )


def _unpack_blocks(raw_blocks: list[tuple[int, ...]], steps: list[Step]) -> Iterator[Threadblock]:
    for number, raw in enumerate(raw_blocks):
        send_peer, receive_peer, channel, *_, first, count, _ = raw
        yield Threadblock(
            number, send_peer, receive_peer, channel, tuple(steps[first : first + count])
        )


def _unpack_step(raw: tuple[int, ...]) -> Step:
    code, src, dst, _, src_offset, dst_offset, count, block, step = raw
    return Step(
        layout.STEP_TYPES[code],
        ChunkRef(layout.BUFFERS[src], src_offset),
        ChunkRef(layout.BUFFERS[dst], dst_offset),
        count,
        None if block == layout.NO_DEPENDENCE else StepRef(block, step),
    )
