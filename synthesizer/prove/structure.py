"""Static checks of header, ids, peers, counts, dependences and operands.

Each check is one expression over the columns of a `StepTable`, so that schedules of millions of
steps take seconds; only what breaks a rule is visited step by step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Buffer, StepType
from synthesizer.ir.msccl_limits import MAX_CHANNELS
from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.step_table import BUFFERS, Flags, Ints, Memory, StepTable

MAX_CHUNKS = 1 << 20
"""Most chunks of a buffer: far beyond every runtime, small enough for the verifier's memory."""
MAX_CONTENTS = 1 << 22
"""Most chunks of all ranks together, as the verifier tracks the contents of each."""
MAX_MOVES = 1 << 23
"""Most chunks moved by all steps together, which bounds the verifier's time."""


def header_defects(algorithm: Algorithm) -> Iterator[Defect]:
    """Yield the defects of the attributes of the whole schedule."""
    chunks, ranks = algorithm.chunks_per_loop, algorithm.ranks
    if not ranks:
        yield _structure("the schedule has no ranks")
        return
    if not 1 <= chunks <= MAX_CHUNKS:
        yield _structure(f"{chunks} chunks per loop, must be 1 to {MAX_CHUNKS}")
    elif (contents := _contents(algorithm)) > MAX_CONTENTS:
        yield _structure(
            f"{contents} chunks in the buffers of {ranks} ranks, at most {MAX_CONTENTS} "
            "are verified"
        )
    elif algorithm.collective.divides and chunks % ranks:
        yield _structure(
            f"{chunks} chunks per loop cannot be divided among the {ranks} ranks of "
            f"{algorithm.collective}"
        )
    if not 1 <= algorithm.channels <= MAX_CHANNELS:
        yield _structure(f"{algorithm.channels} channels, must be 1 to {MAX_CHANNELS}")
    smallest, largest = algorithm.min_bytes, algorithm.max_bytes
    if smallest < 0 or (largest and largest < smallest):
        yield _structure(
            f"for {smallest} to {largest} bytes, must be from 0 or more to no less than that, "
            "or to 0 for no end"
        )
    if algorithm.collective.has_root and not 0 <= algorithm.root < ranks:
        yield _structure(f"root {algorithm.root} is not one of the {ranks} ranks")
    if not (algorithm.in_place or algorithm.out_of_place):
        yield _structure("usable neither in place nor out of place")
    yield from _result_defects(algorithm)


def _result_defects(algorithm: Algorithm) -> Iterator[Defect]:
    """Yield the defects of a stated result."""
    ranks = algorithm.ranks
    if not algorithm.results:
        return
    if algorithm.collective is not Collective.CUSTOM:
        yield _structure(f"states a result of {algorithm.collective}, which is known")
    elif len(algorithm.results) != ranks:
        yield _structure(f"states results of {len(algorithm.results)} ranks, has {ranks}")
    else:
        for gpu, stated in zip(algorithm.programs, algorithm.results, strict=True):
            if len(stated) > gpu.output_chunks:
                text = f"states {len(stated)} result chunks, its output has {gpu.output_chunks}"
                yield _structure(text, gpu.rank)
            if any(total and not 0 < total.ranks < 1 << ranks for total in stated):
                yield _structure(f"states a result of ranks that are none of {ranks}", gpu.rank)


def _contents(algorithm: Algorithm) -> int:
    """Return the chunks of all ranks, with input and output counted as one buffer."""
    return sum(
        max(algorithm.chunks_per_loop, gpu.input_chunks, gpu.output_chunks)
        + max(0, gpu.scratch_chunks)
        for gpu in algorithm.programs
    )


def program_defects(
    algorithm: Algorithm, table: StepTable, *, nops_report: bool = False
) -> Iterator[Defect]:
    """Yield the defects of ranks, threadblocks, counts and dependences.

    With `nops_report` a step may wait for a nop, as in the programs of TuCCL's executor.
    """
    numbering = list(_numbering_defects(algorithm, table))
    yield from numbering
    if numbering:
        return
    yield from _block_defects(algorithm, table)
    nop = table.are(StepType.NOP)
    for step in _where(table.count < np.where(nop, 0, 1)):
        yield _at(table, step, f"count {table.count[step]} must be at least 1")
    yield from _dependence_defects(table, nop & (not nops_report))
    # Single counts beyond the limit must not overflow the sum.
    moves = int(np.clip(table.count, 0, MAX_MOVES + 1).sum())
    if moves > MAX_MOVES:
        yield _structure(f"{moves} chunks moved in all, at most {MAX_MOVES} are verified")


def _numbering_defects(algorithm: Algorithm, table: StepTable) -> Iterator[Defect]:
    for position, gpu in enumerate(algorithm.programs):
        if gpu.rank != position:
            yield _structure(f"program {position} is of rank {gpu.rank}")
        sizes = (gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks)
        if not all(0 <= size <= MAX_CHUNKS for size in sizes):
            yield _structure(
                f"buffers of {sizes} chunks (input, output, scratch), each must be 0 to "
                f"{MAX_CHUNKS}",
                gpu.rank,
            )
    positions = np.arange(len(table.block_id)) - table.first_block[table.block_rank]
    for block in _where(table.block_id != positions):
        yield _structure(
            f"threadblock ids must run from 0, found {table.block_id[block]} at position "
            f"{positions[block]}",
            int(table.block_rank[block]),
        )


def _block_defects(algorithm: Algorithm, table: StepTable) -> Iterator[Defect]:
    for side, peers, used in (
        ("send", table.send_peer, table.sends),
        ("receive", table.recv_peer, table.receives),
    ):
        for block in _where(
            (peers == table.block_rank) | (peers < -1) | (peers >= algorithm.ranks)
        ):
            text = f"{side} peer {peers[block]} is not another rank"
            yield _structure(text, int(table.block_rank[block]), int(table.block_id[block]))
        for step in _where(used & (peers[table.block] < 0)):
            yield _at(table, step, f"{table.type_of(step)} in a threadblock without {side} peer")


def channel_defects(algorithm: Algorithm, table: StepTable) -> Iterator[Defect]:
    """Yield the threadblocks whose channel the schedule does not have."""
    for block in _where((table.channel < 0) | (table.channel >= algorithm.channels)):
        text = f"channel {table.channel[block]} is not one of {algorithm.channels}"
        yield _structure(text, int(table.block_rank[block]), int(table.block_id[block]))


def _dependence_defects(table: StepTable, silent: Flags) -> Iterator[Defect]:
    """Yield dependences on steps that do not exist, or never report that they are done."""
    waiting = np.flatnonzero(table.depends)
    rank, awaited = table.rank[waiting], table.awaited_block[waiting]
    known = (awaited >= 0) & (awaited < np.diff(table.first_block)[rank])
    number = table.awaited_step[waiting]
    block = (table.first_block[rank] + awaited)[known]
    known[known] = (number[known] >= 0) & (number[known] < np.diff(table.first)[block])
    for step in waiting[~known].tolist():
        yield _at(table, step, f"{_awaited(table, step)}, which does not exist")
    waiting = waiting[known]
    for step in waiting[silent[table.awaited(waiting)]].tolist():
        text = f"{_awaited(table, step)}, a nop, which never reports that it is done"
        yield _at(table, step, text)


def operand_defects(algorithm: Algorithm, table: StepTable, memory: Memory) -> Iterator[Defect]:
    """Yield operands outside buffers, writes to a send buffer, operands that overlap in part."""
    reads, writes = table.reads, table.writes
    inside = np.ones(table.steps, dtype=bool)
    for used, buffer, offset in (
        (reads, table.src_buffer, table.src_offset),
        (writes, table.dst_buffer, table.dst_offset),
    ):
        size = memory.size(table, buffer)
        outside = inside & used & ((offset < 0) | (offset > size - table.count))
        inside &= ~outside
        for step in _where(outside):
            chunks = _chunks(table, step, buffer, offset)
            text = f"{table.type_of(step)} of {chunks} outside the {size[step]} chunks of that"
            yield _at(table, step, f"{text} buffer")
    distance = np.abs(memory.source - memory.target)
    for step in _where(inside & reads & writes & (distance > 0) & (distance < table.count)):
        source, target = _source(table, step), _target(table, step)
        text = f"source {source} and destination {target} of one {table.type_of(step)} overlap"
        yield _at(table, step, text, DefectKind.RACE)
    if algorithm.collective is Collective.CUSTOM:
        return
    into_input = writes & (table.dst_buffer == BUFFERS.index(Buffer.INPUT))
    for step in _where(inside & into_input & ~memory.shared[table.rank]):
        text = (
            f"input and output apart, {table.type_of(step)} writes {_target(table, step)} of the "
            "caller's send buffer"
        )
        yield _at(table, step, text, DefectKind.INPUT_OVERWRITTEN)


def _where(flags: Flags) -> list[int]:
    return np.flatnonzero(flags).tolist()


def _structure(message: str, rank: int | None = None, threadblock: int | None = None) -> Defect:
    return Defect(DefectKind.STRUCTURE, rank, threadblock, None, message)


def _at(
    table: StepTable, step: int, message: str, kind: DefectKind = DefectKind.STRUCTURE
) -> Defect:
    return Defect(kind, *table.place(step), message)


def _awaited(table: StepTable, step: int) -> str:
    return f"waits for threadblock {table.awaited_block[step]} step {table.awaited_step[step]}"


def _source(table: StepTable, step: int) -> str:
    return _chunks(table, step, table.src_buffer, table.src_offset)


def _target(table: StepTable, step: int) -> str:
    return _chunks(table, step, table.dst_buffer, table.dst_offset)


def _chunks(table: StepTable, step: int, buffer: Ints, offset: Ints) -> str:
    first, count = int(offset[step]), int(table.count[step])
    last = f"..{first + count - 1}" if count > 1 else ""
    return f"{BUFFERS[buffer[step]]}[{first}{last}]"
