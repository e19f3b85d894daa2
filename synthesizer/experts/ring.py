"""Ring algorithms over one or more rings, each ring on a channel of its own.

Steps and traffic are the textbook's: all_gather and reduce_scatter take N-1 steps, all_reduce
2(N-1), and every rank sends (N-1)/N of the buffer per half (Thakur et al. 2005, NCCL's ring).
Data is cut evenly over the rings.
"""

from __future__ import annotations

from collections.abc import Sequence

from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Program

Ring = tuple[int, ...]
"""Ranks in sending order; the last one sends to the first."""


def ring_all_gather(rings: Sequence[Ring]) -> Program:
    """All_gather with one chunk per rank and ring."""
    program = Program(Collective.ALL_GATHER, len(rings[0]), len(rings))
    for rank in range(program.ranks):
        program.copy(
            program.input(rank, 0, program.chunks),
            program.output(rank, rank * program.chunks, program.chunks),
        )
    for step in range(program.ranks - 1):
        for channel, ring in enumerate(rings):
            for position in range(program.ranks):
                owner = ring[(position - step) % program.ranks]
                here, there = ring[position], ring[(position + 1) % program.ranks]
                offset = owner * program.chunks + channel
                own = program.input(here, channel)
                source = own if here == owner else program.output(here, offset)
                program.copy(source, program.output(there, offset), channel)
    return program


def ring_reduce_scatter(rings: Sequence[Ring]) -> Program:
    """Reduce_scatter with one chunk per rank and ring."""
    program = Program(Collective.REDUCE_SCATTER, len(rings[0]), len(rings))
    partial: dict[tuple[int, int], Chunk] = {}
    for step in range(program.ranks - 1):
        for channel, ring in enumerate(rings):
            for position in range(program.ranks):
                owner = ring[(position - step - 1) % program.ranks]
                here, there = ring[position], ring[(position + 1) % program.ranks]
                offset = owner * program.chunks + channel
                source = partial.get((owner, channel), program.input(here, offset))
                last = there == owner
                target = program.output(there, channel) if last else program.scratch(there)
                operand = program.input(there, offset)
                partial[owner, channel] = program.reduce(source, target, operand, channel)
    return program


def ring_all_reduce(rings: Sequence[Ring]) -> Program:
    """All_reduce as reduce_scatter and all_gather around the same rings."""
    ranks = len(rings[0])
    program = Program(Collective.ALL_REDUCE, ranks, ranks * len(rings))
    partial: dict[int, Chunk] = {}
    for step in range(2 * (ranks - 1)):
        for channel, ring in enumerate(rings):
            for position in range(ranks):
                offset = ((position - step) % ranks) * len(rings) + channel
                there = ring[(position + 1) % ranks]
                source = partial.get(offset, program.input(ring[position], offset))
                if step < ranks - 1:
                    last = step == ranks - 2
                    target = program.output(there, offset) if last else program.scratch(there)
                    operand = program.input(there, offset)
                    partial[offset] = program.reduce(source, target, operand, channel)
                else:
                    target = program.output(there, offset)
                    partial[offset] = program.copy(source, target, channel)
    return program


def ring_broadcast(rings: Sequence[Ring], root: int, pipeline: int) -> Program:
    """Broadcast down each ring from the root, `pipeline` chunks one after another per ring."""
    ranks = len(rings[0])
    program = Program(Collective.BROADCAST, ranks, len(rings) * pipeline, root)
    for wave in range(pipeline + ranks - 2):
        for channel, ring in enumerate(rings):
            first = ring.index(root)
            for hop in range(ranks - 1):
                if not 0 <= wave - hop < pipeline:
                    continue
                offset = (wave - hop) * len(rings) + channel
                here, there = ring[(first + hop) % ranks], ring[(first + hop + 1) % ranks]
                source = program.output(here, offset) if hop else program.input(here, offset)
                program.copy(source, program.output(there, offset), channel)
    program.copy(program.input(root, 0, program.chunks), program.output(root, 0, program.chunks))
    return program


def ring_reduce(rings: Sequence[Ring], root: int, pipeline: int) -> Program:
    """Reduce along each ring towards the root, `pipeline` chunks one after another per ring."""
    ranks = len(rings[0])
    program = Program(Collective.REDUCE, ranks, len(rings) * pipeline, root)
    partial: dict[int, Chunk] = {}
    for wave in range(pipeline + ranks - 2):
        for channel, ring in enumerate(rings):
            first = ring.index(root) + 1
            for hop in range(ranks - 1):
                if not 0 <= wave - hop < pipeline:
                    continue
                offset = (wave - hop) * len(rings) + channel
                here, there = ring[(first + hop) % ranks], ring[(first + hop + 1) % ranks]
                source = partial.get(offset, program.input(here, offset))
                target = program.output(there, offset) if there == root else program.scratch(there)
                operand = program.input(there, offset)
                partial[offset] = program.reduce(source, target, operand, channel)
    return program
