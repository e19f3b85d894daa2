"""Programs put together record by record: sound ones that no compiler would write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lookup_tables.bundle_layout import OPERATIONS
from lookup_tables.program_header import HASH_BYTES, HEADER, MAGIC, VERSION, sealed
from lookup_tables.table import Operation
from synthesizer.ir.algorithm import Buffer, StepType
from synthesizer.programs import layout


@dataclass(frozen=True)
class RawStep:
    """A step, on chunks of scratch memory unless it says otherwise."""

    type: StepType
    source: int = 0
    destination: int = 0
    count: int = 1
    awaited: tuple[int, int] | None = None
    """Threadblock of the rank, and its step."""
    is_awaited: bool = False
    buffers: tuple[Buffer, Buffer] = (Buffer.SCRATCH, Buffer.SCRATCH)
    """The buffers of source and destination."""


def raw_program(
    ranks: Sequence[Sequence[Sequence[RawStep]]], *, scratch: int, chunks: int = 1
) -> bytes:
    """Threadblocks of each rank, none of which sends; a sum that is right, as is the address."""
    blocks = [block for rank in ranks for block in rank]
    steps = [step for block in blocks for step in block]
    records, first = [], 0
    for rank in ranks:
        records.append(layout.RANK.pack(first, len(rank), 0, scratch))
        first += len(rank)
    first = 0
    for block in blocks:
        alone = (layout.NO_PEER, layout.NO_PEER, 0, 0, layout.NO_CONNECTION, layout.NO_CONNECTION)
        records.append(layout.THREADBLOCK.pack(*alone, first, len(block), 0))
        first += len(block)
    records += [_pack(step) for step in steps]
    body = b"".join(records)
    most = max(len(rank) for rank in ranks), 0, 0, max(len(block) for block in blocks), scratch, 0
    numbers = OPERATIONS.index(Operation.ALL_REDUCE), 0, 0, 0, len(ranks), chunks
    head = HEADER.pack(
        *(MAGIC, VERSION, 0, bytes(HASH_BYTES)),
        *(HEADER.size + len(body), 0, *numbers, len(blocks), len(steps), *most),
    )
    return sealed(head + body)


def _pack(step: RawStep) -> bytes:
    flags = layout.HAS_DEPENDENT * step.is_awaited
    awaited = step.awaited or (layout.NO_DEPENDENCE, 0)
    buffers = [layout.BUFFERS.index(buffer) for buffer in step.buffers]
    codes = layout.STEP_TYPES.index(step.type), *buffers, flags
    return layout.STEP.pack(*codes, step.source, step.destination, step.count, *awaited)
