"""All-pairs algorithms: every rank exchanges with every other at once (MSCCLang section 6).

They have the fewest steps and suit small buffers. They need an edge between every two ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lookup_tables.collective import Collective
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Reference, Schedule
from synthesizer.experts.hierarchical import after
from synthesizer.ir.msccl_limits import MAX_BLOCKS_PER_CHANNEL
from synthesizer.ir.program import Program


def _channel(src: int, dst: int, ranks: int) -> int:
    """Return the channel of a connection; a channel has at most `MAX_BLOCKS_PER_CHANNEL` peers."""
    return ((dst - src) % ranks - 1) // MAX_BLOCKS_PER_CHANNEL


def all_pairs_all_gather(ranks: int) -> Program:
    """All_gather in one step: each rank sends its chunk to every other."""
    schedule = Schedule(Collective.ALL_GATHER, ranks)
    for rank in range(ranks):
        own = schedule.chunk(rank, INPUT, 0)
        _send_to_all(own, rank, ranks)
        own.copy(rank, OUTPUT, rank)
    return schedule.program()


def all_pairs_reduce_scatter(ranks: int) -> Program:
    """Reduce_scatter in one step: each rank adds up what its peers send."""
    schedule = Schedule(Collective.REDUCE_SCATTER, ranks)
    for owner in range(ranks):
        _sum_up(schedule, owner, 0)
    return schedule.program()


def all_pairs_all_reduce_one_phase(ranks: int) -> Program:
    """All_reduce in one step: each rank sends its whole buffer to every other."""
    schedule = Schedule(Collective.ALL_REDUCE, ranks)
    received = {
        (rank, peer): schedule.chunk(peer, INPUT, 0).copy(
            rank, SCRATCH, channel=_channel(peer, rank, ranks)
        )
        for rank in range(ranks)
        for peer in after(rank, ranks)
    }
    for rank in range(ranks):
        total = schedule.chunk(rank, INPUT, 0).copy(rank, OUTPUT, 0)
        for peer in after(rank, ranks):
            total = total.reduce(received[rank, peer])
    return schedule.program()


def all_pairs_all_reduce_two_phase(ranks: int) -> Program:
    """All_reduce in two steps: all-pairs reduce_scatter, then all-pairs all_gather."""
    schedule = Schedule(Collective.ALL_REDUCE, ranks, chunks=ranks)
    sums = [_sum_up(schedule, owner, owner) for owner in range(ranks)]
    for owner, total in enumerate(sums):
        _send_to_all(total, owner, ranks)
    return schedule.program()


def all_pairs_alltoall(ranks: int) -> Program:
    """Alltoall in one step; out of place only, since every output overlaps another's input."""
    schedule = Schedule(Collective.ALLTOALL, ranks, in_place=False)
    for rank in range(ranks):
        for peer in (*after(rank, ranks), rank):
            channel = _channel(rank, peer, ranks) if peer != rank else 0
            schedule.chunk(rank, INPUT, peer).copy(peer, OUTPUT, rank, channel)
    return schedule.program()


def _send_to_all(own: Reference, index: int, ranks: int) -> None:
    for peer in after(own.rank, ranks):
        own.copy(peer, OUTPUT, index, _channel(own.rank, peer, ranks))


def _sum_up(schedule: Schedule, owner: int, index: int) -> Reference:
    total = schedule.chunk(owner, INPUT, owner)
    for peer in after(owner, schedule.ranks):
        channel = _channel(peer, owner, schedule.ranks)
        total = total.reduce(schedule.chunk(peer, INPUT, owner), OUTPUT, index, channel)
    return total


BUILDERS: Mapping[Collective, Mapping[str, Callable[[int], Program]]] = {
    Collective.ALL_GATHER: {"all_pairs": all_pairs_all_gather},
    Collective.REDUCE_SCATTER: {"all_pairs": all_pairs_reduce_scatter},
    Collective.ALL_REDUCE: {
        "all_pairs_one_phase": all_pairs_all_reduce_one_phase,
        "all_pairs_two_phase": all_pairs_all_reduce_two_phase,
    },
    Collective.ALLTOALL: {"all_pairs": all_pairs_alltoall},
}
"""Algorithms for a number of ranks, by collective and the end of their names."""
