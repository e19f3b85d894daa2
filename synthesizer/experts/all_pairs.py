"""All-pairs algorithms: every rank talks to every other at once (MSCCLang section 6).

Fewest steps, so best for small buffers. They need an edge between every two ranks.
"""

from __future__ import annotations

from synthesizer.collectives import Collective
from synthesizer.program import Program


def _peers(rank: int, ranks: int) -> list[int]:
    """Other ranks, nearest above first, so that not everybody starts with the same one."""
    return [(rank + distance) % ranks for distance in range(1, ranks)]


def all_pairs_all_gather(ranks: int) -> Program:
    """All_gather in one step: each rank sends its chunk to every other."""
    program = Program(Collective.ALL_GATHER, ranks, 1)
    for rank in range(ranks):
        for peer in _peers(rank, ranks):
            program.copy(program.input(rank, 0), program.output(peer, rank))
        program.copy(program.input(rank, 0), program.output(rank, rank))
    return program


def all_pairs_reduce_scatter(ranks: int) -> Program:
    """Reduce_scatter in one step: each rank adds up what the others send it."""
    program = Program(Collective.REDUCE_SCATTER, ranks, 1)
    for owner in range(ranks):
        total = program.input(owner, owner)
        for peer in _peers(owner, ranks):
            source = program.input(peer, owner)
            total = program.reduce(source, program.output(owner, 0), total)
    return program


def all_pairs_all_reduce_one_phase(ranks: int) -> Program:
    """All_reduce in one step: each rank sends its whole buffer to every other."""
    program = Program(Collective.ALL_REDUCE, ranks, 1)
    received = {
        (rank, peer): program.copy(program.input(peer, 0), program.scratch(rank))
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
            total = program.reduce(source, program.output(owner, owner), total)
    for owner in range(ranks):
        for peer in _peers(owner, ranks):
            program.copy(program.output(owner, owner), program.output(peer, owner))
    return program


def all_pairs_alltoall(ranks: int) -> Program:
    """Alltoall in one step; out of place only, since every output overlaps another's input."""
    program = Program(Collective.ALLTOALL, ranks, 1, in_place=False)
    for rank in range(ranks):
        for peer in _peers(rank, ranks):
            program.copy(program.input(rank, peer), program.output(peer, rank))
        program.copy(program.input(rank, rank), program.output(rank, rank))
    return program
