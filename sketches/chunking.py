"""Chunking: suitable numbers of chunks for the buffer of a collective, by size.

Protocols move whole lines through the slots of a FIFO, and MSCCL runtimes silently leave a call to
NCCL if the schedule's number of chunks does not divide its size. Suitable numbers of chunks are
therefore preferred to others that are slightly faster in a model without lines and slots.

Lines and slots are NCCL's (2.28 src/include/device.h; 8 slots, NCCL_STEPS): LL has 8 bytes of data
in each line of 16, LL128 has 120 in each line of 128, Simple copies 16 bytes at once. A slot of LL
holds 8 lines of each of 512 threads, a slot of Simple an eighth of its buffer of 4 MiB; a slot of
LL128 holds a little more. The runtimes test count % nchunksperloop, where count is the number of
elements that a rank contributes (Azure/msccl-scheduler and Azure/msccl-executor-nccl,
msccl_lifecycle.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

_POWERS_OF_TWO = tuple(1 << i for i in range(9))
_ELEMENT_BYTES = 4
"""Bytes of a float, the usual element; the condition for smaller elements is weaker."""
_MOST_PADDING = 0.05
"""Largest padding of a chunk's last line, as a share of the chunk."""
_LEFT_TO_NCCL = 1.05
_UNEVEN = 1.01


@dataclass(frozen=True, slots=True)
class Misfit:
    """A reason why a number of chunks does not fit a size."""

    text: str
    worth: float
    """Least speedup with which a schedule is preferred in spite of it."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """Preferred chunks for sizes from `min_bytes` to `max_bytes`, both inclusive."""

    min_bytes: Annotated[int, Ge(0)]
    max_bytes: Annotated[int, Ge(0)] | None
    """Largest size; None: no limit."""
    grain_bytes: Annotated[int, Ge(1)]
    """Divisor of suitable chunk sizes."""
    line_bytes: Annotated[int, Ge(1)]
    """Data bytes of a line; the last line of a chunk is padded."""
    slot_bytes: Annotated[int, Ge(1)]
    """Data bytes of a slot; larger chunks are cut, preferably evenly."""
    counts: tuple[Annotated[int, Ge(1)], ...]
    """Numbers of chunks of one rank's data to try first, in ascending order."""
    reason: str

    def fitting_counts(self, size_bytes: int, sources: int, contributions: int) -> tuple[int, ...]:
        """Return the `counts` that fit if `sources` ranks cut their data into so many chunks."""
        return tuple(
            count
            for count in self.counts
            if not self.misfits(size_bytes, count * sources, contributions)
        )

    def misfits(self, size_bytes: int, chunks: int, contributions: int) -> tuple[Misfit, ...]:
        """Return the reasons why a number of chunks does not fit.

        The size is that of the whole buffer, as in nccl-tests. The blocks of `contributions` ranks
        form the buffer; 1: each rank has all of it.
        """
        multiple = msccl_multiple_bytes(chunks, contributions)
        if size_bytes % multiple:
            return (Misfit(_left_to_nccl(size_bytes, chunks, multiple), _LEFT_TO_NCCL),)
        chunk_bytes = size_bytes // chunks
        found = []
        if chunk_bytes % self.grain_bytes:
            text = f"chunks of {chunk_bytes} bytes are not a multiple of {self.grain_bytes} bytes"
            found.append(Misfit(text, _UNEVEN))
        padding = -chunk_bytes % self.line_bytes / chunk_bytes
        if padding > _MOST_PADDING:
            text = f"lines of {self.line_bytes} bytes pad chunks of {chunk_bytes} by {padding:.1%}"
            found.append(Misfit(text, _UNEVEN))
        if chunk_bytes > self.slot_bytes and chunk_bytes % self.slot_bytes:
            text = f"slots of {self.slot_bytes} bytes cut chunks of {chunk_bytes} unevenly"
            found.append(Misfit(text, _UNEVEN))
        return tuple(found)


def msccl_multiple_bytes(chunks: int, contributions: int) -> int:
    """Return the divisor of the sizes for which MSCCL runtimes use a schedule (4-byte elements)."""
    return _ELEMENT_BYTES * chunks * contributions


def chunking_for(chunkings: tuple[Chunking, ...], size_bytes: int) -> Chunking | None:
    """Return the first chunking whose range contains the size."""
    for chunking in chunkings:
        least, most = chunking.min_bytes, chunking.max_bytes
        if least <= size_bytes and (most is None or size_bytes <= most):
            return chunking
    return None


def _left_to_nccl(size_bytes: int, chunks: int, multiple: int) -> str:
    return (
        f"MSCCL runtimes leave {size_bytes} bytes to NCCL: for {chunks} chunks they take multiples "
        f"of {multiple} bytes only (4-byte elements)"
    )


NCCL_CHUNKING = (
    Chunking(
        min_bytes=0,
        max_bytes=(32 << 10) - 1,
        grain_bytes=8,
        line_bytes=8,
        slot_bytes=32 << 10,
        counts=_POWERS_OF_TWO,
        reason="small calls use LL, 8 bytes of data in each line of 16",
    ),
    Chunking(
        min_bytes=32 << 10,
        max_bytes=(16 << 20) - 1,
        grain_bytes=16,
        line_bytes=120,
        slot_bytes=512 << 10,
        counts=_POWERS_OF_TWO,
        reason="calls between use LL128, 120 bytes of data in each line of 128, or Simple",
    ),
    Chunking(
        min_bytes=16 << 20,
        max_bytes=None,
        grain_bytes=16,
        line_bytes=16,
        slot_bytes=512 << 10,
        counts=_POWERS_OF_TWO,
        reason="large calls use Simple, 16 bytes at once and slots of 512 KiB",
    ),
)
"""Chunkings for schedules whose protocol is not known before they are measured."""
