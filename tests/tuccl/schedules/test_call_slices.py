"""Sizes of slices: no two divide a call alike, and all fit the executor's scratch memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import MOST_SCRATCH_BYTES, MOST_SLICES
from tuccl.models.across_hosts.phase_pipeline import MOST_WINDOWS
from tuccl.schedules import call_slices
from tuccl.schedules.call_slices import slice_sizes, slices_of_call, staged_slice_sizes
from tuccl.search.trials.presets import KIB, MIB, UNSLICED

EXECUTOR = Path(__file__).resolve().parents[3] / "tuccl" / "runtime" / "executor"
GATHER = plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 2)
EXCHANGE = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 2)


def test_the_executor_has_these_limits() -> None:
    plan = (EXECUTOR / "uniform_plan.h").read_text()
    need = (EXECUTOR / "staging_need.h").read_text()
    assert f"kMostSlices = {MOST_SLICES};" in plan
    assert f"kMostWindows = {MOST_WINDOWS};" in plan
    assert f"kWindowGrain = {call_slices.LEFT_OVER_BYTES};" in plan
    (mib,) = re.findall(r"kMostScratchBytes = uint64_t\{(\d+)\} << 20;", need)
    assert int(mib) * MIB == MOST_SCRATCH_BYTES


@pytest.mark.parametrize(
    ("lanes", "size_bytes", "sizes"),
    [
        (1, KIB, [UNSLICED]),
        (1, 128 * KIB, [UNSLICED]),
        (1, 256 * KIB, [64 * KIB, 128 * KIB, UNSLICED]),
        (1, 64 * MIB, [16 * MIB, 32 * MIB, UNSLICED]),
        (1, 1024 * MIB, [128 * MIB]),
        (2, 128 * KIB, []),
        (2, 256 * KIB, [64 * KIB, 128 * KIB]),
        (4, 256 * KIB, [64 * KIB]),
        (8, 256 * KIB, []),
        (8, 64 * MIB, [2 * MIB, 4 * MIB, 8 * MIB]),
    ],
)
def test_each_lane_has_one_slice_two_or_four(lanes: int, size_bytes: int, sizes: list[int]) -> None:
    """Slices of 256 MB take half of that in each of two windows, which leaves no room for more."""
    plan = GATHER if lanes == 1 else GATHER.with_lanes(lanes)
    assert list(slice_sizes(plan, size_bytes)) == sizes


def test_a_call_has_as_many_slices_as_its_size_needs_and_64_at_most() -> None:
    assert slices_of_call(EXCHANGE, MIB, UNSLICED) == 1
    assert slices_of_call(EXCHANGE, MIB + 1, 256 * KIB) == 5
    assert slices_of_call(EXCHANGE, 1024 * MIB, 64 * KIB) == 64
    alltoall = plan_by_name(Collective.ALLTOALL, "rails_last", 2, 2)
    assert slices_of_call(alltoall, 1024 * MIB, MIB) == 1, "its slices would lie apart"


def test_where_such_slices_do_not_fit_the_largest_that_fit_are_taken() -> None:
    assert slice_sizes(EXCHANGE, 1024 * MIB) == (32 * MIB,)
    assert slice_sizes(EXCHANGE, 16384 * MIB) == ()


@pytest.mark.parametrize(
    ("collective", "name", "local_ranks"),
    [(Collective.ALLTOALL, "rails_last", 2), (Collective.REDUCE_SCATTER, "exchange", 1)],
)
def test_calls_whose_slices_lie_apart_run_in_one_piece(
    collective: Collective, name: str, local_ranks: int
) -> None:
    """NCCL's alltoall takes adjacent blocks."""
    plan = plan_by_name(collective, name, 2, local_ranks)
    assert slice_sizes(plan, 64 * MIB) == (UNSLICED,)
    assert slice_sizes(plan, 1024 * MIB) == ()
    assert slice_sizes(plan.with_lanes(2), 64 * MIB) == ()


@pytest.mark.parametrize(
    ("lanes", "size_bytes", "sizes"),
    [
        (1, 512 * KIB, [UNSLICED]),
        (1, 4 * MIB, [256 * KIB, MIB, UNSLICED]),
        (2, 256 * KIB, []),
        (2, 512 * KIB, [256 * KIB]),
        (8, 64 * MIB, [2 * MIB, 4 * MIB, 8 * MIB]),
    ],
)
def test_each_lane_of_rounds_has_a_slice_at_least(
    lanes: int, size_bytes: int, sizes: list[int]
) -> None:
    assert list(staged_slice_sizes(size_bytes, lanes)) == sizes


def test_other_reduce_scatters_are_divided() -> None:
    for name in ("rails_last", "exchange"):
        plan = plan_by_name(Collective.REDUCE_SCATTER, name, 2, 2)
        assert slice_sizes(plan, MIB) == (256 * KIB, 512 * KIB, UNSLICED)
