"""All-pairs algorithms: every rank talks to every other at once (MSCCLang section 6).

Fewest steps, so best for small buffers. They need an edge between every two ranks.
"""

from __future__ import annotations

from synthesizer.collectives import Collective
from synthesizer.msccl_limits import MAX_BLOCKS_PER_CHANNEL
from synthesizer.program import Program


def _peers(rank: int, ranks: int) -> list[int]:
    """Other ranks, nearest above first, so that not everybody starts with the same one."""
    return [(rank + distance) % ranks for distance in range(1, ranks)]


def _channel(src: int, dst: int, ranks: int) -> int:
    """Channel of a connection: one takes as many peers as the runtime allows threadblocks."""
    return ((dst - src) % ranks - 1) // MAX_BLOCKS_PER_CHANNEL


def all_pairs_all_gather(ranks: int) -> Program:
    """All_gather in one step: each rank sends its chunk to every other."""
    program = Program(Collective.ALL_GATHER, ranks, 1)
    for rank in range(ranks):
        for peer in _peers(rank, ranks):
            channel = _channel(rank, peer, ranks)
            program.copy(program.input(rank, 0), program.output(peer, rank), channel)
        program.copy(program.input(rank, 0), program.output(rank, rank))
    return program


def all_pairs_reduce_scatter(ranks: int) -> Program:
    """Reduce_scatter in one step: each rank adds up what the others send it."""
    program = Program(Collective.REDUCE_SCATTER, ranks, 1)
    for owner in range(ranks):
        total = program.input(owner, owner)
        for peer in _peers(owner, ranks):
            source = program.input(peer, owner)
            channel = _channel(peer, owner, ranks)
            total = program.reduce(source, program.output(owner, 0), total, channel)
    return program


def all_pairs_all_reduce_one_phase(ranks: int) -> Program:
    """All_reduce in one step: each rank sends its whole buffer to every other."""
    program = Program(Collective.ALL_REDUCE, ranks, 1)
    received = {
        (rank, peer): program.copy(
            program.input(peer, 0), program.scratch(rank), _channel(peer, rank, ranks)
        )
        for rank in range(ranks)
        for peer in _peers(rank, ranks)
    }
    for rank in range(ranks):
        total = program.copy(program.input(rank, 0), program.output(rank, 0))
        for peer in _peers(rank, ranks):
            program.reduce(received[rank, peer], total)
    return program


def all_pairs_all_reduce_two_phase(ranks: int) -> Program:
    """All_reduce in two steps: all-pairs reduce_scatter, then all-pairs all_gather."""
    program = Program(Collective.ALL_REDUCE, ranks, ranks)
    for owner in range(ranks):
        total = program.input(owner, owner)
        for peer in _peers(owner, ranks):
            source = program.input(peer, owner)
            channel = _channel(peer, owner, ranks)
            total = program.reduce(source, program.output(owner, owner), total, channel)
    for owner in range(ranks):
        for peer in _peers(owner, ranks):
            channel = _channel(owner, peer, ranks)
            program.copy(program.output(owner, owner), program.output(peer, owner), channel)
    return program


def all_pairs_alltoall(ranks: int) -> Program:
    """Alltoall in one step; out of place only, since every output overlaps another's input."""
    program = Program(Collective.ALLTOALL, ranks, 1, in_place=False)
    for rank in range(ranks):
        for peer in _peers(rank, ranks):
            channel = _channel(rank, peer, ranks)
            program.copy(program.input(rank, peer), program.output(peer, rank), channel)
        program.copy(program.input(rank, rank), program.output(rank, rank))
    return program
