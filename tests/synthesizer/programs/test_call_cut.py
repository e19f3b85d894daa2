"""Chunks and scratch memory of a call, as the executor has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from synthesizer.programs.phases import (
    MOST_SCRATCH_BYTES,
    MOST_SLICES,
    chunk_bytes_of,
    has_scratch_for,
    slices_of_call,
)
from tests.synthesizer.programs.phased_schedules import over_gateways as in_rounds


@pytest.mark.parametrize(
    ("collective", "chunks", "size_bytes", "chunk_bytes"),
    [
        (Collective.ALL_REDUCE, 1, 1 << 20, 1 << 20),
        (Collective.ALL_REDUCE, 3, 1 << 20, 349_536),
        (Collective.ALL_REDUCE, 3, 1, 16),
        (Collective.ALL_GATHER, 2, 1 << 20, 1 << 17),
        (Collective.ALL_GATHER, 2, 8 * 17, 32),
    ],
)
def test_a_part_is_cut_into_chunks_of_whole_16_bytes(
    collective: Collective, chunks: int, size_bytes: int, chunk_bytes: int
) -> None:
    phased = replace(in_rounds(collective), chunks=chunks)
    assert phased.ranks == 4
    assert chunk_bytes_of(phased, size_bytes) == chunk_bytes


@pytest.mark.parametrize(
    ("size_bytes", "slice_bytes", "count", "chunk_bytes"),
    [
        (1 << 20, 1 << 20, 1, 1 << 20),
        (1 << 20, 1 << 30, 1, 1 << 20),
        (1 << 20, 1 << 18, 4, 262_560),
        (1 << 20, 1, 63, 16_800),
        (1_000, 100, 3, 480),
        (100, 10, 1, 112),
    ],
)
def test_slices_are_whole_pieces_of_ll128_of_each_chunk(
    size_bytes: int, slice_bytes: int, count: int, chunk_bytes: int
) -> None:
    phased = replace(in_rounds(Collective.ALL_REDUCE), chunks=1)
    found = slices_of_call(phased, size_bytes, slice_bytes)
    assert (found.count, found.chunk_bytes) == (count, chunk_bytes)
    assert found.count * found.chunk_bytes >= chunk_bytes_of(phased, size_bytes)


def test_the_executor_slices_calls_so() -> None:
    executor = Path(__file__).resolve().parents[3] / "tuccl" / "runtime" / "executor"
    assert f"kMostChunkSlices = {MOST_SLICES};" in (executor / "statement_plan.h").read_text()
    assert (
        "kWireUnits[TUCCL_PROTOCOLS] = {{16, 32}, {480, 512}"
        in (executor / "byte_counts.h").read_text()
    )
    text = " ".join((executor / "statement_plan.cc").read_text().split())
    cut = "round_up(divided_up(cut.chunk_bytes, wanted), kWireUnits[TUCCL_LL128].data_bytes)"
    assert cut in text


def test_scratch_memory_holds_so_much_and_no_more() -> None:
    phased = replace(in_rounds(Collective.ALL_REDUCE), chunks=1)
    phased = replace(phased, scratch_chunks=(4, 0, 1, 2))
    assert has_scratch_for(phased, MOST_SCRATCH_BYTES // 4)
    assert not has_scratch_for(phased, MOST_SCRATCH_BYTES // 4 + 1)
    assert has_scratch_for(replace(phased, scratch_chunks=(0,) * 4), MOST_SCRATCH_BYTES * 16)
