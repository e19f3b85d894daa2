"""Times of sliced calls, worked by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import PhasedSchedule
from tests.synthesizer.programs.phased_schedules import over_gateways
from tuccl.models.across_hosts.phase_pipeline import PhaseTime, pipelined_us

ALL_REDUCE = plan_by_name(Collective.ALL_REDUCE, "rail_all_reduce", 2, 2)
"""A kernel, a round and a kernel."""
ALL_GATHER = plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 2)
"""A round and a kernel."""


def test_a_call_in_one_piece_runs_phase_by_phase() -> None:
    times = [PhaseTime(3.0), PhaseTime(10.0, 4.0), PhaseTime(2.0)]
    assert pipelined_us(ALL_REDUCE, times, 1) == 15.0


def test_kernels_run_beside_the_rounds_of_other_slices() -> None:
    # Rounds from 3 to 13, 13 to 23, 23 to 33 us; the last kernel ends 2 us later.
    times = [PhaseTime(3.0), PhaseTime(10.0), PhaseTime(2.0)]
    assert pipelined_us(ALL_REDUCE, times, 3) == 35.0
    # The first kernels end at 10, 20 and, behind the last kernel of the first slice, 32 us. There
    # follow the last one of the second slice and, after a round from 32 to 35, that of the third.
    assert pipelined_us(ALL_REDUCE, [PhaseTime(10.0), PhaseTime(3.0), PhaseTime(2.0)], 3) == 37.0


def test_lanes_carry_rounds_at_once_as_far_as_the_network_does() -> None:
    laned = replace(ALL_GATHER, lanes=4)
    # Rounds of 10 us end together; then there are four kernels of 2 us.
    assert pipelined_us(laned, [PhaseTime(10.0), PhaseTime(2.0)], 4) == 18.0
    # Each round has the network for 5 us: they end at 10, 10, 15 and 20 us.
    assert pipelined_us(laned, [PhaseTime(10.0, 5.0), PhaseTime(2.0)], 4) == 22.0
    # Two rounds on each of two lanes.
    two = replace(ALL_GATHER, lanes=2)
    assert pipelined_us(two, [PhaseTime(10.0), PhaseTime(2.0)], 4) == 24.0


def test_a_kernel_beside_a_round_has_its_time_and_delays_what_follows() -> None:
    staged = over_gateways(Collective.ALL_REDUCE)
    times = [PhaseTime(3.0), PhaseTime(10.0, beside_us=4.0), PhaseTime(2.0)]
    assert pipelined_us(staged, times, 1) == 15.0
    assert pipelined_us(staged, [times[0], PhaseTime(10.0, beside_us=14.0), times[2]], 1) == 19.0
    # First kernels end at 3 and 10 us, behind the one beside the first round; that ends at 13, the
    # last kernel at 19, behind what runs beside the second round. That ends at 23, the last at 25.
    assert pipelined_us(staged, times, 2) == 25.0


def test_a_slice_waits_for_the_window_of_an_earlier_one() -> None:
    # Kernels of 1 us take turns with rounds of 1 us. With 16 windows at most, of 8 lanes the ninth
    # to the 64th slice start as rounds end.
    laned = replace(ALL_REDUCE, lanes=8)
    times = [PhaseTime(0.01), PhaseTime(100.0), PhaseTime(0.01)]
    assert pipelined_us(laned, times, 64) == pytest.approx(800.0, rel=0.01)


@given(
    st.sampled_from([ALL_REDUCE, ALL_GATHER]),
    st.integers(1, 8),
    st.integers(1, 64),
    st.lists(st.floats(0.5, 50.0), min_size=3, max_size=3),
    st.floats(0.0, 1.0),
)
def test_no_resource_does_more_than_its_time(
    plan: PhasedSchedule, lanes: int, slices: int, times_us: list[float], share: float
) -> None:
    plan = replace(plan, lanes=lanes)
    rail = [phase.kind for phase in plan.phases].index(PhaseKind.RAIL)
    times = [
        PhaseTime(time_us, share * time_us if number == rail else 0.0)
        for number, time_us in enumerate(times_us[: len(plan.phases)])
    ]
    found_us = pipelined_us(plan, times, slices)
    whole_us = sum(time.time_us for time in times)
    kernels_us = slices * (whole_us - times[rail].time_us)
    assert found_us >= max(whole_us, kernels_us, slices * times[rail].network_us) - 1e-6
    assert found_us >= -(-slices // lanes) * times[rail].time_us - 1e-6
    assert found_us <= slices * whole_us + 1e-6
