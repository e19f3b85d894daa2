"""Chunking: into how many chunks the buffer of a collective should be cut, by its size.

Protocols move whole lines through the slots of a FIFO, and MSCCL runtimes leave a call to NCCL,
without a word, when the schedule's number of chunks does not divide it. Numbers of chunks that fit
therefore come before others that are slightly faster in a model without lines and slots.

Lines and slots are NCCL's (2.28 src/include/device.h; 8 slots, NCCL_STEPS): LL has 8 bytes of data
in each line of 16, LL128 has 120 in each of 128, Simple copies 16 bytes at once. A slot of LL holds
8 lines of each of 512 threads, a slot of Simple an eighth of its buffer of 4 MiB; LL128's hold a
little more. The runtimes' rule is count % nchunksperloop, where count are the elements that a rank
contributes (Azure/msccl-scheduler and Azure/msccl-executor-nccl, msccl_lifecycle.cc).
"""

from __future__ import annotations

from dataclasses import dataclass

_POWERS_OF_TWO = tuple(1 << i for i in range(9))
_ELEMENT_BYTES = 4
"""Of a float, which nccl-tests and most training use; halves ask for no more than that."""
_MOST_PADDING = 0.05
"""Of a chunk's last line, as part of the chunk."""
_LEFT_TO_NCCL = 1.05
_UNEVEN = 1.01


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a number of chunks does not fit a size."""

    text: str
    worth: float
    """A schedule is preferred in spite of it when it is faster by this factor at least."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """What chunks should be like for sizes from `min_bytes` to `max_bytes`, both inclusive."""

    min_bytes: int
    max_bytes: int | None
    """None: no upper limit."""
    grain_bytes: int
    """Chunks should be multiples of it."""
    line_bytes: int
    """Data of a line; the last line of a chunk is padded."""
    slot_bytes: int
    """Data of a slot; larger chunks are cut, and should be cut evenly."""
    counts: tuple[int, ...]
    """Chunks of what one rank spreads that are tried first, ascending."""
    reason: str

    def fitting_counts(self, size_bytes: int, sources: int, contributions: int) -> tuple[int, ...]:
        """Those of `counts` that fit where that many sources cut up what they spread."""
        return tuple(
            count
            for count in self.counts
            if not self.misfits(size_bytes, count * sources, contributions)
        )

    def misfits(self, size_bytes: int, chunks: int, contributions: int) -> tuple[Misfit, ...]:
        """What is wrong with a number of chunks.

        Args:
            size_bytes: Of the whole buffer, as in nccl-tests.
            chunks: Of the whole buffer.
            contributions: How many ranks' parts the buffer consists of; 1: each rank has all of it.
        """
        multiple = msccl_multiple_bytes(chunks, contributions)
        if size_bytes % multiple:
            return (Misfit(_left_to_nccl(size_bytes, chunks, multiple), _LEFT_TO_NCCL),)
        chunk_bytes = size_bytes // chunks
        found = []
        if chunk_bytes % self.grain_bytes:
            text = f"chunks of {chunk_bytes} bytes are no multiple of {self.grain_bytes} bytes"
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
    """MSCCL runtimes take a schedule for multiples of so many bytes only, of 4-byte elements."""
    return _ELEMENT_BYTES * chunks * contributions


def chunking_for(chunkings: tuple[Chunking, ...], size_bytes: int) -> Chunking | None:
    """The first whose range holds the size."""
    for one in chunkings:
        if one.min_bytes <= size_bytes and (one.max_bytes is None or size_bytes <= one.max_bytes):
            return one
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
"""For schedules whose protocol is not known before they are measured."""
