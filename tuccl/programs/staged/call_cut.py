"""The cut of a call into chunks, as the executor makes it (`tuccl/runtime/executor/staged_plan.h`).

A part of the buffer, one for each rank or all of it, is cut into chunks of whole 16 bytes; the last
may be shorter, or empty. Scratch memory holds chunks of the same size.
"""

from __future__ import annotations

from tuccl.programs.staged.staged_schedule import StagedSchedule

MOST_SCRATCH_BYTES = 256 << 20
"""Most scratch memory of a call (`tuccl/runtime/executor/staging_need.h`)."""
_GRAIN_BYTES = 16


def chunk_bytes_of(staged: StagedSchedule, size_bytes: int) -> int:
    """Return the bytes of a chunk of a call, whose size is the larger of its two buffers."""
    parts = staged.ranks if staged.collective.divides_by_ranks else 1
    part_bytes = size_bytes // parts
    return -(-part_bytes // (staged.chunks * _GRAIN_BYTES)) * _GRAIN_BYTES


def has_scratch_for(staged: StagedSchedule, size_bytes: int) -> bool:
    """Whether the executor's scratch memory holds what a call of a size keeps."""
    return max(staged.scratch_chunks) * chunk_bytes_of(staged, size_bytes) <= MOST_SCRATCH_BYTES
