"""Vectorised static checks: whether a schedule passes all of them.

The rules are those of `synthesizer.prove.structure`, which names the defects where these
fail.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Buffer, StepType
from synthesizer.ir.wiring import Layout, layout, shares_buffers
from synthesizer.prove.step_table import BUFFERS, Flags, Ints, StepTable
from synthesizer.prove.structure import MAX_CHUNKS, MAX_MOVES, header_defects


def is_sound(algorithm: Algorithm, table: StepTable, modes: Iterable[bool]) -> bool:
    """Return whether header, ids, peers, dependences, counts and operands of all modes are sound.

    Connections are checked where they are wired (`synthesizer.prove.waves`).
    """
    return (
        not any(True for _ in header_defects(algorithm))
        and is_executable(algorithm, table)
        and all(_operands_are_sound(algorithm, table, in_place=mode) for mode in modes)
    )


def is_executable(algorithm: Algorithm, table: StepTable) -> bool:
    """Return whether ids, peers, counts and dependences are sound."""
    return (
        _programs_are_sound(algorithm, table)
        and _blocks_are_sound(algorithm, table)
        and _steps_are_sound(table)
    )


def _programs_are_sound(algorithm: Algorithm, table: StepTable) -> bool:
    sizes = (
        size
        for gpu in algorithm.programs
        for size in (gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks)
    )
    ids = np.arange(len(table.block_id)) - table.first_block[table.block_rank]
    return (
        all(gpu.rank == position for position, gpu in enumerate(algorithm.programs))
        and all(0 <= size <= MAX_CHUNKS for size in sizes)
        and bool((table.block_id == ids).all())
    )


def _blocks_are_sound(algorithm: Algorithm, table: StepTable) -> bool:
    known = (table.channel >= 0) & (table.channel < algorithm.channels)
    for peer in (table.send_peer, table.recv_peer):
        known &= (peer != table.block_rank) & (peer >= -1) & (peer < algorithm.ranks)
    return bool(known.all())


def _steps_are_sound(table: StepTable) -> bool:
    nop = table.is_one_of(frozenset({StepType.NOP}))
    sound = table.count >= np.where(nop, 0, 1)
    sound &= ~table.sends | (table.send_peer[table.block] >= 0)
    sound &= ~table.receives | (table.recv_peer[table.block] >= 0)
    if not sound.all() or not _dependences_are_sound(table, nop):
        return False
    # Single counts beyond the limit must not overflow the sum.
    return bool((table.count <= MAX_MOVES).all()) and int(table.count.sum()) <= MAX_MOVES


def _dependences_are_sound(table: StepTable, nop: Flags) -> bool:
    waiting = np.flatnonzero(table.depends)
    rank, awaited = table.rank[waiting], table.awaited_block[waiting]
    widths = np.diff(table.first_block)
    if not ((awaited >= 0) & (awaited < widths[rank])).all():
        return False
    block = table.first_block[rank] + awaited
    step = table.awaited_step[waiting]
    if not ((step >= 0) & (step < np.diff(table.first)[block])).all():
        return False
    return not nop[table.first[block] + step].any()


def _operands_are_sound(algorithm: Algorithm, table: StepTable, *, in_place: bool) -> bool:
    places = Places(algorithm, in_place=in_place)
    reads, writes = table.reads, table.writes
    for used, buffer, offset in (
        (reads, table.src_buffer, table.src_offset),
        (writes, table.dst_buffer, table.dst_offset),
    ):
        last = places.sizes[table.rank, buffer] - table.count
        if (used & ((offset < 0) | (offset > last))).any():
            return False
    both = reads & writes
    distance = np.abs(
        places.addresses(table.rank, table.src_buffer, table.src_offset)
        - places.addresses(table.rank, table.dst_buffer, table.dst_offset)
    )
    if (both & (distance > 0) & (distance < table.count)).any():
        return False
    shared = np.array(
        [shares_buffers(algorithm, rank, in_place=in_place) for rank in range(algorithm.ranks)]
    )
    into_input = writes & (table.dst_buffer == BUFFERS[Buffer.INPUT])
    custom = algorithm.collective is Collective.CUSTOM
    return custom or not (into_input & ~shared[table.rank]).any()


class Places:
    """Layouts of all ranks in one address space.

    `addresses` numbers the chunks of memory of all ranks: equal addresses are the same memory.
    """

    def __init__(self, algorithm: Algorithm, *, in_place: bool) -> None:
        self.layouts: list[Layout] = [
            layout(algorithm, rank, in_place=in_place) for rank in range(algorithm.ranks)
        ]
        self.sizes = np.array([[lay.size(buffer) for buffer in BUFFERS] for lay in self.layouts])
        # Scratch follows all other buffers (`synthesizer.ir.wiring`).
        spans = np.array([lay.scratch_base + lay.scratch_chunks for lay in self.layouts])
        self.cells = int(spans.sum())
        self.base = np.cumsum(spans) - spans
        """First address of each rank."""
        self._bases = self.base[:, None] + np.array(
            [[lay.input_base, lay.output_base, lay.scratch_base] for lay in self.layouts]
        )

    def addresses(self, rank: Ints, buffer: Ints, offset: Ints) -> Ints:
        """Return the addresses of chunks."""
        return np.asarray(self._bases[rank, buffer] + offset)
