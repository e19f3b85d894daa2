"""Programs put together record by record: sound ones that no compiler would write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lookup_tables.collective import Collective
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
    firsts = accumulate((len(rank) for rank in ranks), initial=0)
    first_steps = accumulate((len(block) for block in blocks), initial=0)
    alone = (layout.NO_PEER, layout.NO_PEER, 0, 0, layout.NO_CONNECTION, layout.NO_CONNECTION)
    return layout.Records(
        Collective.ALL_REDUCE.code,
        *(0, 0, len(ranks), 1, chunks),
        tuple(
            layout.RankRecord(0, scratch, first, len(rank))
            for first, rank in zip(firsts, ranks, strict=False)
        ),
        (layout.PhaseRecord(layout.PhaseKind.STEPS),),
        threadblocks=tuple(
            layout.ThreadblockRecord(*alone, first, len(block))
            for first, block in zip(first_steps, blocks, strict=False)
        ),
        steps=tuple(_record(step) for block in blocks for step in block),
    ).packed()


def _record(step: RawStep) -> layout.StepRecord:
    flags = layout.HAS_DEPENDENT * step.is_awaited
    awaited = step.awaited or (layout.NO_DEPENDENCE, 0)
    source, target = (layout.BUFFERS.index(buffer) for buffer in step.buffers)
    code = layout.STEP_TYPES.index(step.type)
    places = (step.source, step.destination, step.count)
    return layout.StepRecord(code, source, target, flags, *places, *awaited)
