"""A schedule as columns of numbers with one row per step.

Rows run over all threadblocks of all ranks, in the order of the programs; a row is the step's
number. A layout gives each chunk of all ranks' memory one address: in place, input and output share
memory, and two operands conflict if their addresses overlap, whichever buffers they name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.algorithm import Algorithm, Buffer, Step, StepType
from synthesizer.ir.buffer_layout import Layout, layout, shares_buffers

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_TYPES = tuple(StepType)
BUFFERS = tuple(Buffer)


@dataclass(frozen=True, slots=True)
class StepTable:
    """Columns over steps, or over threadblocks where stated; -1 stands for none."""

    rank: Ints
    block: Ints
    """Threadblock number over all ranks."""
    position: Ints
    """Position in the threadblock."""
    kind: Ints
    src_buffer: Ints
    src_offset: Ints
    dst_buffer: Ints
    dst_offset: Ints
    count: Ints
    depends: Flags
    awaited_block: Ints
    """Threadblock id of the dependence."""
    awaited_step: Ints
    block_rank: Ints
    """Rank of each threadblock; the columns below are over threadblocks as well."""
    block_id: Ints
    send_peer: Ints
    recv_peer: Ints
    channel: Ints
    first: Ints
    """First step of each threadblock, then the number of steps."""
    first_block: Ints
    """First threadblock of each rank, then the number of threadblocks."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.rank)

    def _which(self, is_wanted: Callable[[StepType], bool]) -> Flags:
        return np.asarray(np.array([is_wanted(kind) for kind in _TYPES])[self.kind])

    def are(self, kind: StepType) -> Flags:
        """Return a flag per step: whether it is of a type."""
        return np.asarray(self.kind == _TYPES.index(kind))

    @property
    def receives(self) -> Flags:
        """Steps that receive a message."""
        return self._which(attrgetter("receives"))

    @property
    def sends(self) -> Flags:
        """Steps that send a message."""
        return self._which(attrgetter("sends"))

    @property
    def reads(self) -> Flags:
        """Steps that read their source operand."""
        return self._which(attrgetter("reads_source"))

    @property
    def writes(self) -> Flags:
        """Steps that write their destination."""
        return self._which(attrgetter("writes"))

    def awaited(self, waiting: Ints) -> Ints:
        """Return the steps that steps with sound dependences wait for."""
        block = self.first_block[self.rank[waiting]] + self.awaited_block[waiting]
        return np.asarray(self.first[block] + self.awaited_step[waiting])

    def type_of(self, step: int) -> StepType:
        """Return the type of a step."""
        return _TYPES[int(self.kind[step])]

    def place(self, step: int) -> tuple[int, int, int]:
        """Return rank, threadblock and position of a step."""
        block = int(self.block_id[self.block[step]])
        return int(self.rank[step]), block, int(self.position[step])

    def name(self, step: int) -> str:
        """Return a step's name for messages."""
        rank, threadblock, position = self.place(step)
        return f"rank {rank} threadblock {threadblock} step {position} ({self.type_of(step)})"


def step_table(algorithm: Algorithm) -> StepTable:
    """Flatten a schedule.

    Raises:
        OverflowError: A number needs more than 64 bits.
    """
    blocks = [block for gpu in algorithm.programs for block in gpu.threadblocks]
    lengths = _ints(len(block.steps) for block in blocks)
    widths = _ints(len(gpu.threadblocks) for gpu in algorithm.programs)
    first = starts(lengths)
    block_rank = np.repeat(np.arange(algorithm.ranks), widths)
    block = np.repeat(np.arange(len(blocks)), lengths)
    distinct, row = _distinct(list(chain.from_iterable(block.steps for block in blocks)))

    def column(value: Callable[[Step], int]) -> Ints:
        return np.asarray(_ints(map(value, distinct))[row])

    return StepTable(
        rank=block_rank[block],
        block=block,
        position=np.arange(len(block)) - first[block],
        kind=column(lambda step: _TYPES.index(step.type)),
        src_buffer=column(lambda step: BUFFERS.index(step.src.buffer)),
        src_offset=column(lambda step: step.src.offset),
        dst_buffer=column(lambda step: BUFFERS.index(step.dst.buffer)),
        dst_offset=column(lambda step: step.dst.offset),
        count=column(lambda step: step.count),
        depends=column(lambda step: step.depends is not None).astype(bool),
        awaited_block=column(lambda step: step.depends.threadblock if step.depends else -1),
        awaited_step=column(lambda step: step.depends.step if step.depends else -1),
        block_rank=block_rank,
        block_id=_ints(block.id for block in blocks),
        send_peer=_ints(block.send_peer for block in blocks),
        recv_peer=_ints(block.recv_peer for block in blocks),
        channel=_ints(block.channel for block in blocks),
        first=first,
        first_block=starts(widths),
    )


def in_parts(table: StepTable, parts: Ints) -> StepTable:
    """Return a table for the order of steps alone, in which each consists of several.

    A part has its step's position, and no operands of its own; a dependence waits for all parts.
    """
    step = np.repeat(np.arange(table.steps), parts)
    end = starts(parts)
    awaited_step = table.awaited_step.copy()
    waiting = np.flatnonzero(table.depends)
    awaited = table.awaited(waiting)
    first = end[table.first]
    awaited_step[waiting] = end[awaited + 1] - 1 - first[table.block[awaited]]
    steps = ("rank", "block", "position", "kind", "src_buffer", "src_offset", "dst_buffer")
    more = ("dst_offset", "depends", "awaited_block")
    columns = {name: getattr(table, name)[step] for name in (*steps, *more)}
    once = np.ones(len(step), dtype=np.int64)
    return replace(table, first=first, count=once, awaited_step=awaited_step[step], **columns)


class Memory:
    """The layouts of all ranks in one address space, and the addresses of all steps' operands."""

    def __init__(self, algorithm: Algorithm, table: StepTable, *, in_place: bool) -> None:
        ranks = range(algorithm.ranks)
        self.layouts: list[Layout] = [layout(algorithm, rank, in_place=in_place) for rank in ranks]
        self.shared = np.array(
            [shares_buffers(algorithm, rank, in_place=in_place) for rank in ranks], dtype=bool
        )
        """Ranks whose input and output share memory."""
        self._sizes = np.array([[lay.chunks[buffer] for buffer in BUFFERS] for lay in self.layouts])
        # Scratch follows all other buffers (`synthesizer.ir.buffer_layout`).
        spans = np.array(
            [lay.first[Buffer.SCRATCH] + lay.chunks[Buffer.SCRATCH] for lay in self.layouts]
        )
        self.cells = int(spans.sum())
        self.base = np.cumsum(spans) - spans
        """First address of each rank."""
        bases = self.base[:, None] + np.array(
            [[lay.first[buffer] for buffer in BUFFERS] for lay in self.layouts]
        )
        self.source = bases[table.rank, table.src_buffer] + table.src_offset
        self.target = bases[table.rank, table.dst_buffer] + table.dst_offset

    def size(self, table: StepTable, buffer: Ints) -> Ints:
        """Return the chunks of a buffer of each step's rank."""
        return np.asarray(self._sizes[table.rank, buffer])


def starts(lengths: Ints) -> Ints:
    """Return the start of each of several consecutive ranges, then the end of the last."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))


def ranges(first: Ints, lengths: Ints) -> Ints:
    """Return the ranges of `lengths[i]` numbers from `first[i]`, concatenated."""
    ends = np.cumsum(lengths)
    return np.repeat(first - ends + lengths, lengths) + np.arange(int(lengths.sum()))


def units(table: StepTable, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the single chunks of the chosen steps: the step of each, and its place in the step."""
    counts = table.count[chosen]
    return np.repeat(chosen, counts), ranges(np.zeros(len(chosen), dtype=np.int64), counts)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _distinct(steps: list[Step]) -> tuple[list[Step], Ints]:
    """Return the distinct step objects, and for every step the index of its object."""
    identities = _ints(map(id, steps))
    _, index, row = np.unique(identities, return_index=True, return_inverse=True)
    return [steps[i] for i in index.tolist()], row
