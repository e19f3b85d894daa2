"""Sizes at which a candidate is worth trying; figures computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketches.candidates import sketch_candidates
from sketches.guidance import CandidateFigures, SizeRange, size_ranges
from sketches.sketch_json import sketch_from_json, sketch_to_json
from tests.sketches.machines import pcie_box
from tuccl.errors import MachineError

RELAYED = CandidateFigures("relayed", 40, 3.0, 100.0)
STRAIGHT = CandidateFigures("straight", 80, 1.0, 20.0)


def test_few_hops_are_for_small_sizes_and_wide_ways_for_large_ones() -> None:
    # At 20 GB/s a byte takes 50 ps, at 100 GB/s 10 ps: 0.995 (3 us + n 10 ps) >= n 50 ps up to
    # 74,532 bytes.
    default, straight = size_ranges("all_gather", [RELAYED, STRAIGHT])
    assert (default.min_bytes, default.max_bytes) == (0, None)
    assert (straight.min_bytes, straight.max_bytes) == (0, 74_531)
    assert "above 74,532 bytes, which move at 20.0 GB/s" in straight.reason
    # 3 us are more than 1 us and the bytes at 20 GB/s below 40,000 bytes.
    default, relayed = size_ranges("all_gather", [STRAIGHT, RELAYED])
    assert (relayed.min_bytes, relayed.max_bytes) == (40_000, None)
    assert relayed.reason == (
        "below 40,000 bytes its latency of 3.00 us is more than straight takes in all"
    )


def test_a_good_schedule_pays_the_latency_in_every_phase() -> None:
    _, relayed = size_ranges("all_reduce", [STRAIGHT, RELAYED], phases=2)
    assert relayed.min_bytes == 20_000


def test_more_connections_of_the_same_bandwidth_are_for_sizes_where_latency_counts() -> None:
    mesh = replace(STRAIGHT, name="mesh", bandwidth_gb_per_s=100.0)
    _, sizes = size_ranges("all_gather", [RELAYED, mesh])
    # Half a percent of the bytes' time is 0.995 of the 3 us.
    assert (sizes.min_bytes, sizes.max_bytes) == (0, 59_700_000)
    fewer = replace(mesh, connections=20)
    assert size_ranges("all_gather", [RELAYED, fewer])[1].max_bytes is None


def test_what_is_worse_in_both_is_for_no_size() -> None:
    worse = CandidateFigures("worse", 90, 5.0, 10.0)
    (_, sizes) = size_ranges("all_gather", [RELAYED, worse])
    assert not any(sizes.holds(1 << power) for power in range(41))
    assert sizes.reason.startswith("for no size: below ")


figures = st.builds(
    CandidateFigures,
    st.just("any"),
    st.integers(1, 1000),
    st.floats(0.1, 50.0),
    st.floats(0.5, 1000.0),
)


@given(candidates=st.lists(figures, min_size=2, max_size=5), power=st.floats(0, 40))
def test_nothing_is_left_out_that_could_be_much_better_than_the_rest(
    candidates: list[CandidateFigures], power: float
) -> None:
    size_bytes = int(2**power)

    def bytes_us(candidate: CandidateFigures) -> float:
        return size_bytes * 1e-3 / candidate.bandwidth_gb_per_s

    ranges = size_ranges("all_gather", candidates)
    assert ranges[0].holds(size_bytes)
    for candidate, sizes in zip(candidates, ranges, strict=True):
        bound_us = max(candidate.latency_us, bytes_us(candidate))
        rivals = [rival for rival in candidates if rival is not candidate]
        rivals_us = min(rival.latency_us + bytes_us(rival) for rival in rivals)
        # Half a byte of rounding on either side.
        if bound_us < 0.99 * rivals_us and size_bytes > 1000:
            assert sizes.holds(size_bytes)
        if bound_us > 1.01 * rivals_us and sizes is not ranges[0] and size_bytes > 1000:
            assert not sizes.holds(size_bytes)


def test_sizes_travel_with_the_sketch_and_speak_of_their_operation_only() -> None:
    (sketch,) = sketch_candidates(pcie_box(3))
    sizes = (SizeRange("all_gather", 4096, None, "small ones are for others"),)
    restored = sketch_from_json(sketch_to_json(replace(sketch, sizes=sizes)))
    assert restored.sizes == sizes
    assert restored.chunking == sketch.chunking != ()
    assert restored.sizes_of("all_gather") == sizes[0]
    assert restored.sizes_of("all_reduce") is None


@pytest.mark.parametrize("size_bytes", [-1, 1.5])
def test_a_size_is_a_number_of_bytes(size_bytes: float) -> None:
    (sketch,) = sketch_candidates(pcie_box(3))
    text = sketch_to_json(replace(sketch, sizes=(SizeRange("all_gather", 7, None, "x"),)))
    with pytest.raises(MachineError, match=r"sizes\.0\.min_bytes"):
        sketch_from_json(text.replace('"min_bytes": 7', f'"min_bytes": {size_bytes}'))
