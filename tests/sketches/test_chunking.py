"""Numbers of chunks that fit a size; figures computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketches.chunking import NCCL_CHUNKING, chunking_for, msccl_multiple_bytes

MIB = 1 << 20


def texts(size_bytes: int, chunks: int, contributions: int = 1) -> list[str]:
    chunking = chunking_for(NCCL_CHUNKING, size_bytes)
    assert chunking is not None
    return [misfit.text for misfit in chunking.misfits(size_bytes, chunks, contributions)]


def test_ranges_hold_every_size_once() -> None:
    assert NCCL_CHUNKING[0].min_bytes == 0
    assert NCCL_CHUNKING[-1].max_bytes is None
    ends = [entry.max_bytes + 1 for entry in NCCL_CHUNKING if entry.max_bytes is not None]
    assert ends == [entry.min_bytes for entry in NCCL_CHUNKING[1:]]


def test_a_runtime_counts_the_elements_that_a_rank_contributes() -> None:
    # 8 ranks pass 32,768 floats each: 64 divides that, 96 does not.
    assert texts(MIB, 64, 8) == []
    (text,) = texts(MIB, 96, 8)
    assert text.startswith("MSCCL runtimes leave 1048576 bytes to NCCL: for 96 chunks they take")
    assert "multiples of 3072 bytes only" in text
    assert msccl_multiple_bytes(96, 8) == 96 * 8 * 4
    # All_reduce passes all of them.
    assert texts(96 * 1200, 96) == []
    (text,) = texts(96 * 1200 + 4, 96)
    assert "multiples of 384 bytes" in text


@pytest.mark.parametrize(
    ("size_bytes", "chunks", "text"),
    [
        (1_000_000, 8, "chunks of 125000 bytes are not a multiple of 16 bytes"),
        # 1,024 bytes are 8 lines of 120 and 64 bytes of a ninth, 56 of which stay empty.
        (64 << 10, 64, "lines of 120 bytes pad chunks of 1024 by 5.5%"),
        # 9/8 of a slot: an eighth goes alone.
        (36 * MIB, 64, "slots of 524288 bytes cut chunks of 589824 unevenly"),
        (36, 3, "chunks of 12 bytes are not a multiple of 8 bytes"),
    ],
)
def test_what_does_not_fit_lines_and_slots_is_told(size_bytes: int, chunks: int, text: str) -> None:
    assert text in texts(size_bytes, chunks)


def test_chunks_of_whole_slots_or_less_than_one_fit() -> None:
    assert texts(32 * MIB, 64) == []
    assert texts(512 * MIB, 64) == []
    assert texts(16 * MIB, 64) == []


def test_a_schedule_that_is_skipped_must_win_more_clearly_than_one_that_is_padded() -> None:
    middle = NCCL_CHUNKING[1]
    (skipped,) = middle.misfits(MIB, 96, 8)
    (padded,) = middle.misfits(64 << 10, 64, 1)
    assert skipped.worth > padded.worth > 1


@given(
    power=st.integers(12, 40),
    ranks=st.sampled_from([2, 4, 8, 16, 32]),
    divided=st.booleans(),
)
def test_powers_of_two_have_counts_that_divide_them(power: int, ranks: int, divided: bool) -> None:
    size_bytes = 1 << power
    chunking = chunking_for(NCCL_CHUNKING, size_bytes)
    assert chunking is not None
    contributions = ranks if divided else 1
    counts = chunking.fitting_counts(size_bytes, ranks, contributions)
    assert counts == tuple(sorted(counts))
    assert counts or size_bytes // ranks < 120 * 20
    for count in counts:
        assert (size_bytes // contributions // 4) % (count * ranks) == 0
        chunk_bytes = size_bytes // (count * ranks)
        assert chunk_bytes % chunking.grain_bytes == 0
        assert chunk_bytes <= chunking.slot_bytes or chunk_bytes % chunking.slot_bytes == 0
