"""What buffers of a collective hold at its start and at its end, chunk by chunk.

A chunk's symbolic content is a multiset of contributions: `(rank, chunk)` stands for chunk `chunk`
of the input buffer of rank `rank`, added once. A schedule is correct if every chunk of every rank's
result holds exactly the contributions of `postcondition`, each once. All correct contents add the
same chunk index of different ranks, hence the compact form `Sum`.

Chunk counts follow MSCCL: `chunks_per_loop` C counts chunks of the larger buffer, with
`C = ranks * k` where it has a part for each rank, and `C = k` otherwise.

In place, as in NCCL, input and output are one buffer, or the smaller one is the rank's part of the
larger one. For a collective with a root only the root has both.
"""

from __future__ import annotations

from typing import NamedTuple

from lookup_tables.collective import Collective


class Sum(NamedTuple):
    """Input chunk `chunk` of every rank whose bit is set in `ranks`, each added exactly once."""

    chunk: int
    ranks: int


def input_chunks(
    collective: Collective, ranks: int, chunks_per_loop: int, rank: int = 0, root: int = 0
) -> int:
    """Return the chunks of the input buffer that the caller fills on `rank`.

    It is 0 if the root alone has an input: NCCL lets other ranks pass a null pointer.
    """
    if collective.from_root and rank != root:
        return 0
    return chunks_per_loop // ranks if collective.input_is_part else chunks_per_loop


def output_chunks(
    collective: Collective, ranks: int, chunks_per_loop: int, rank: int = 0, root: int = 0
) -> int:
    """Return the chunks of the output buffer of `rank`.

    It is 0 if the root alone has an output: NCCL lets other ranks pass a null pointer.
    """
    if collective.to_root and rank != root:
        return 0
    return chunks_per_loop // ranks if collective.output_is_part else chunks_per_loop


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
        ValueError: The operation is `custom`, whose post-condition its author states.
    """
    if collective is Collective.CUSTOM:
        msg = "custom: no post-condition is known for this operation"
        raise ValueError(msg)
    part = chunks_per_loop // ranks
    first = rank * part if collective.splits else 0
    senders = (1 << ranks) - 1 if collective.reduces else 1 << root
    chunks = range(output_chunks(collective, ranks, chunks_per_loop, rank, root))
    if collective.joins:
        return tuple(Sum(first + chunk % part, 1 << chunk // part) for chunk in chunks)
    return tuple(Sum(first + chunk, senders) for chunk in chunks)
