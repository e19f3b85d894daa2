"""Uniform schedules run on numbers: what an executor computes, and what the operation demands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Buffer
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phases import CallPhase, PhasedSchedule

Array = NDArray[np.float64]
"""Chunks by ranks, one number each."""


class Buffers:
    """The buffers of all ranks; in place, input and output are views of the same memory."""

    def __init__(self, phased: PhasedSchedule, inputs: Array, *, in_place: bool) -> None:
        ranks, output = (
            phased.ranks,
            np.full((phased.ranks, phased.chunks_of(Buffer.OUTPUT)), np.nan),
        )
        own = np.copy(inputs)
        self.of_rank: list[dict[Buffer, Array]] = []
        for rank in range(ranks):
            part: Array = own[rank]
            result: Array = output[rank]
            if in_place and phased.collective is Collective.ALL_GATHER:
                result[rank : rank + 1] = part
                part = result[rank : rank + 1]
            elif in_place and phased.collective is Collective.REDUCE_SCATTER:
                result = part[rank : rank + 1]
            elif in_place:
                result = part
            scratch = np.full(phased.chunks_of(Buffer.SCRATCH), np.nan)
            self.of_rank.append(
                {Buffer.INPUT: part, Buffer.OUTPUT: result, Buffer.SCRATCH: scratch}
            )


def run_phases(
    phased: PhasedSchedule,
    inputs: Array,
    *,
    in_place: bool,
    averages: bool,
    rng: np.random.Generator,
    add: Callable[[CallPhase, list[Array]], Array] | None = None,
) -> Array:
    """Return the outputs of all ranks; calls of a phase run in any order, and add as `add` does."""
    buffers = Buffers(phased, inputs, in_place=in_place)
    for phase in phased.calls:
        for call in rng.permutation(phase.calls):
            for members in groups(phased, phase):
                own = [buffers.of_rank[r] for r in members]
                run_call(phased, phase, int(call), own, averages, add)
    return np.array([rank[Buffer.OUTPUT] for rank in buffers.of_rank])


def groups(phased: PhasedSchedule, phase: CallPhase) -> list[list[int]]:
    grid = np.arange(phased.ranks).reshape(phased.nodes, phased.local_ranks)
    if phase.kind is PhaseKind.SUM:
        return [[rank] for rank in range(phased.ranks)]
    return [list(row) for row in (grid if phase.kind is PhaseKind.LOCAL else grid.T)]


def run_call(
    phased: PhasedSchedule,
    phase: CallPhase,
    call: int,
    members: list[dict[Buffer, Array]],
    averages: bool,
    add: Callable[[CallPhase, list[Array]], Array] | None = None,
) -> None:
    count, chunks = len(members), phase.chunks
    first = phase.source.chunk + call * phase.source_stride
    reads = {
        Collective.REDUCE_SCATTER: count * chunks,
        Collective.ALLTOALL: count * chunks,
        Collective.REDUCE: phase.repeats * chunks,
    }.get(phase.collective, chunks)
    sources = [member[phase.source.buffer][first : first + reads].copy() for member in members]

    def reduced(parts: list[Array]) -> Array:
        if add is not None:
            return add(phase, parts)
        return np.array((np.mean if averages else np.sum)(parts, axis=0))

    for place, member in enumerate(members):
        block = slice(place * chunks, (place + 1) * chunks)
        match phase.collective:
            case Collective.ALL_REDUCE:
                result = reduced(sources)
            case Collective.ALL_GATHER:
                result = np.concatenate(sources)
            case Collective.REDUCE_SCATTER:
                result = reduced([source[block] for source in sources])
            case Collective.ALLTOALL:
                result = np.concatenate([source[block] for source in sources])
            case _:
                result = reduced(list(sources[0].reshape(phase.repeats, chunks)))
        at = phase.target.chunk + call * phase.target_stride
        target = member[phase.target.buffer]
        assert phase.target.buffer is not Buffer.INPUT
        assert at + len(result) <= len(target)
        target[at : at + len(result)] = result


def demanded(collective: Collective, inputs: Array, *, averages: bool) -> Array:
    """Return the outputs that the operation demands."""
    ranks = len(inputs)
    total = inputs.mean(axis=0) if averages else inputs.sum(axis=0)
    match collective:
        case Collective.ALL_REDUCE:
            return np.tile(total, (ranks, 1))
        case Collective.ALL_GATHER:
            return np.tile(inputs.reshape(-1), (ranks, 1))
        case Collective.REDUCE_SCATTER:
            return np.array(total).reshape(ranks, -1)
        case _:
            return np.array(inputs.T)
