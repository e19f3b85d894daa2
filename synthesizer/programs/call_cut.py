"""The cut of a call into chunks, as the executor makes it.

`tuccl/runtime/executor/statement_plan.h` does the same. A part of the buffer, one for each rank or
all of it, is cut into chunks of whole 16 bytes; the last may be shorter, or empty. Scratch memory
holds chunks of the same size. A slice of the call is some bytes of each chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

from synthesizer.programs.phases import PhasedSchedule

MOST_SCRATCH_BYTES = 256 << 20
"""Most scratch memory of a call (`tuccl/runtime/executor/staging_need.h`)."""
MOST_SLICES = 64
_GRAIN_BYTES = 16
_SLICE_GRAIN_BYTES = 480
"""Data of a piece of LL128."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of a call, which have as many bytes of each chunk."""

    count: int
    chunk_bytes: int
    """Bytes of a chunk in each slice but the last."""


def chunk_bytes_of(phased: PhasedSchedule, size_bytes: int) -> int:
    """Return the bytes of a chunk of a call, whose size is the larger of its two buffers."""
    parts = phased.ranks if phased.collective.divides_by_ranks else 1
    part_bytes = size_bytes // parts
    return -(-part_bytes // (phased.chunks * _GRAIN_BYTES)) * _GRAIN_BYTES


def slices_of_call(phased: PhasedSchedule, size_bytes: int, slice_bytes: int) -> Slices:
    """Return the slices of a call, which is to have slices of at most so many bytes."""
    chunk_bytes = chunk_bytes_of(phased, size_bytes)
    wanted = min(-(-size_bytes // slice_bytes), MOST_SLICES)
    if wanted <= 1:
        return Slices(1, chunk_bytes)
    each = -(-chunk_bytes // (wanted * _SLICE_GRAIN_BYTES)) * _SLICE_GRAIN_BYTES
    return Slices(-(-chunk_bytes // each), min(each, chunk_bytes))


def has_scratch_for(phased: PhasedSchedule, size_bytes: int) -> bool:
    """Whether the executor's scratch memory holds what a call of a size keeps."""
    return max(phased.scratch_chunks) * chunk_bytes_of(phased, size_bytes) <= MOST_SCRATCH_BYTES
