"""A schedule as columns of numbers with one row per step, for vectorised proofs.

Rows run over all threadblocks of all ranks, in the order of the programs. The k-th send of a
connection (src, dst, channel) matches its k-th receive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.algorithm import Algorithm, Buffer, Step, StepType
from synthesizer.ir.wiring import READS_SRC, RECEIVING, SENDING, WRITES_DST

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_KINDS = {kind: number for number, kind in enumerate(StepType)}
BUFFERS = {buffer: number for number, buffer in enumerate(Buffer)}


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

    def is_one_of(self, kinds: frozenset[StepType]) -> Flags:
        """Return a flag per step: whether its type is one of `kinds`."""
        wanted = np.zeros(len(_KINDS), dtype=bool)
        wanted[[_KINDS[kind] for kind in kinds]] = True
        return np.asarray(wanted[self.kind])

    @property
    def receives(self) -> Flags:
        """Steps that receive a message."""
        return self.is_one_of(RECEIVING)

    @property
    def sends(self) -> Flags:
        """Steps that send a message."""
        return self.is_one_of(SENDING)

    @property
    def reads(self) -> Flags:
        """Steps that read their source operand."""
        return self.is_one_of(READS_SRC)

    @property
    def writes(self) -> Flags:
        """Steps that write their destination."""
        return self.is_one_of(WRITES_DST)


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
        kind=column(lambda step: _KINDS[step.type]),
        src_buffer=column(lambda step: BUFFERS[step.src.buffer]),
        src_offset=column(lambda step: step.src.offset),
        dst_buffer=column(lambda step: BUFFERS[step.dst.buffer]),
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


def starts(lengths: Ints) -> Ints:
    """Return the start of each of several consecutive ranges, then the end of the last."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _distinct(steps: list[Step]) -> tuple[list[Step], Ints]:
    """Return the distinct step objects, and for every step the index of its object."""
    identities = _ints(map(id, steps))
    _, index, row = np.unique(identities, return_index=True, return_inverse=True)
    return [steps[i] for i in index.tolist()], row
