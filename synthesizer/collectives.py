"""The collectives, their buffers and their exact post-conditions.

A chunk's content is described symbolically as a multiset of contributions: `(rank, chunk)` says
"chunk `chunk` of the input buffer of rank `rank`, added once". A schedule is right when every chunk
of every rank's result holds exactly the contributions that `postcondition` names, each once.

Chunk counts follow MSCCL: `chunks_per_loop` C counts chunks of the larger buffer, with
`C = ranks * k` for all_gather, reduce_scatter and alltoall, and `C = k` for the others.
"""

from __future__ import annotations

from enum import StrEnum


class Collective(StrEnum):
    """Operations that a schedule can implement; names as in nccl-tests."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALLTOALL = "alltoall"
    CUSTOM = "custom"
    """Read from a file whose operation has no known post-condition."""
