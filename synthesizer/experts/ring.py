"""Ring algorithms over one or more rings, each on a channel of its own.

All_gather and reduce_scatter take N-1 steps, all_reduce 2(N-1), and every rank sends (N-1)/N of the
buffer per half (Thakur et al. 2005, NCCL's ring). Data is divided evenly over the rings.
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
                sender, receiver = ring[position], ring[(position + 1) % program.ranks]
                offset = owner * program.chunks + channel
                own = program.input(sender, channel)
                source = own if sender == owner else program.output(sender, offset)
                program.copy(source, program.output(receiver, offset), channel)
    return program


def ring_reduce_scatter(rings: Sequence[Ring]) -> Program:
    """Reduce_scatter with one chunk per rank and ring."""
    program = Program(Collective.REDUCE_SCATTER, len(rings[0]), len(rings))
    partial: dict[tuple[int, int], Chunk] = {}
    for step in range(program.ranks - 1):
        for channel, ring in enumerate(rings):
            for position in range(program.ranks):
                owner = ring[(position - step - 1) % program.ranks]
                sender, receiver = ring[position], ring[(position + 1) % program.ranks]
                offset = owner * program.chunks + channel
                source = partial.get((owner, channel), program.input(sender, offset))
                last = receiver == owner
                target = program.output(receiver, channel) if last else program.scratch(receiver)
                operand = program.input(receiver, offset)
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
                receiver = ring[(position + 1) % ranks]
                source = partial.get(offset, program.input(ring[position], offset))
                if step < ranks - 1:
                    last = step == ranks - 2
                    target = program.output(receiver, offset) if last else program.scratch(receiver)
                    operand = program.input(receiver, offset)
                    partial[offset] = program.reduce(source, target, operand, channel)
                else:
                    target = program.output(receiver, offset)
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
                sender, receiver = ring[(first + hop) % ranks], ring[(first + hop + 1) % ranks]
                source = program.output(sender, offset) if hop else program.input(sender, offset)
                program.copy(source, program.output(receiver, offset), channel)
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
                sender, receiver = ring[(first + hop) % ranks], ring[(first + hop + 1) % ranks]
                source = partial.get(offset, program.input(sender, offset))
                target = (
                    program.output(receiver, offset)
                    if receiver == root
                    else program.scratch(receiver)
                )
                operand = program.input(receiver, offset)
                partial[offset] = program.reduce(source, target, operand, channel)
    return program
