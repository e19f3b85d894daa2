"""The collectives with their buffers and exact post-conditions.

A chunk's symbolic content is a multiset of contributions: `(rank, chunk)` stands for chunk `chunk`
of the input buffer of rank `rank`, added once. A schedule is correct if every chunk of every rank's
result holds exactly the contributions of `postcondition`, each once. All correct contents add the
same chunk index of different ranks, hence the compact form `Sum`.

Chunk counts follow MSCCL: `chunks_per_loop` C counts chunks of the larger buffer, with
`C = ranks * k` for all_gather, reduce_scatter and alltoall, and `C = k` for the others.

In place, as in NCCL, all_reduce, alltoall and the root of broadcast and reduce have one buffer for
input and output; the input of all_gather is the rank's slice of its output, the output of
reduce_scatter the rank's slice of its input.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tuccl.errors import UsageError


class Collective(StrEnum):
    """The operations of schedules, with the names of nccl-tests."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALLTOALL = "alltoall"
    CUSTOM = "custom"
    """An operation without a known post-condition."""

    @property
    def divides_by_ranks(self) -> bool:
        """Whether the larger buffer holds one block per rank, so that `ranks` divides C."""
        return self in {Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALLTOALL}

    @property
    def has_root(self) -> bool:
        """Whether the operation has a root rank."""
        return self in {Collective.BROADCAST, Collective.REDUCE}

    @property
    def reduces(self) -> bool:
        """Whether contributions of several ranks are added up."""
        return self in {Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE}


class Sum(NamedTuple):
    """Input chunk `chunk` of every rank whose bit is set in `ranks`, each added exactly once."""

    chunk: int
    ranks: int


def input_chunks(
    collective: Collective, ranks: int, chunks_per_loop: int, rank: int = 0, root: int = 0
) -> int:
    """Return the chunks of the input buffer that the caller fills on `rank`.

    Only the root of a broadcast has one: NCCL lets other ranks pass a null pointer.
    """
    if collective is Collective.ALL_GATHER:
        return chunks_per_loop // ranks
    if collective is Collective.BROADCAST and rank != root:
        return 0
    return chunks_per_loop


def output_chunks(
    collective: Collective, ranks: int, chunks_per_loop: int, rank: int = 0, root: int = 0
) -> int:
    """Return the chunks of the output buffer of `rank`.

    Only the root of a reduce has one: NCCL lets other ranks pass a null pointer.
    """
    if collective is Collective.REDUCE_SCATTER:
        return chunks_per_loop // ranks
    if collective is Collective.REDUCE and rank != root:
        return 0
    return chunks_per_loop


def initial_contents(
    collective: Collective, ranks: int, chunks_per_loop: int, rank: int, root: int = 0
) -> tuple[Sum, ...]:
    """Return the contents of `rank`'s input buffer at the start, chunk by chunk."""
    mine = 1 << rank
    return tuple(
        Sum(chunk, mine)
        for chunk in range(input_chunks(collective, ranks, chunks_per_loop, rank, root))
    )


def postcondition(
    collective: Collective, ranks: int, chunks_per_loop: int, rank: int, root: int = 0
) -> tuple[Sum, ...]:
    """Return the required contents of `rank`'s output buffer at the end, chunk by chunk.

    Raises:
        ValueError: The operation is `custom`, which has no known post-condition.
    """
    all_ranks = (1 << ranks) - 1
    block = chunks_per_loop // ranks
    chunks = range(output_chunks(collective, ranks, chunks_per_loop, rank, root))
    match collective:
        case Collective.ALL_REDUCE | Collective.REDUCE:
            return tuple(Sum(chunk, all_ranks) for chunk in chunks)
        case Collective.REDUCE_SCATTER:
            return tuple(Sum(rank * block + chunk, all_ranks) for chunk in chunks)
        case Collective.ALL_GATHER:
            return tuple(Sum(chunk % block, 1 << chunk // block) for chunk in chunks)
        case Collective.ALLTOALL:
            return tuple(Sum(rank * block + chunk % block, 1 << chunk // block) for chunk in chunks)
        case Collective.BROADCAST:
            return tuple(Sum(chunk, 1 << root) for chunk in chunks)
        case Collective.CUSTOM:
            msg = "custom: no post-condition is known for this operation"
            raise ValueError(msg)


def parse_collective(name: str) -> Collective:
    """Return a collective by its nccl-tests name; `AllGather` and `all-gather` work too.

    Raises:
        UsageError: The name is unknown.
    """
    wanted = name.lower().replace("_", "").replace("-", "")
    known = [collective for collective in Collective if collective is not Collective.CUSTOM]
    for collective in known:
        if collective.value.replace("_", "") == wanted:
            return collective
    raise UsageError(f"operation {name!a:.60} is unknown: use one of {', '.join(known)}")
