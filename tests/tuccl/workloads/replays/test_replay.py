"""Replays: steps as recorded, with a faster host, and without collectives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuccl.workloads.replays.traced import Traced, data_parallel
from tuccl.workloads.replays.exposed import (
    MOST_ALONE,
    exposed_computation_share,
    exposed_times_us,
)
from tuccl.workloads.replays.recorded_events import HostRole
from tuccl.workloads.replays.replay import host_factor_for, replayed_us

SUM = frozenset({0})


def test_a_replay_takes_as_long_as_what_was_recorded() -> None:
    assert replayed_us(data_parallel().timeline(90.0, 360.0)) == 270.0


def test_without_its_sum_the_step_waits_for_the_computation_beside_it() -> None:
    # The optimizer begins at 260 instead of 320: 60 us less of 120.
    timeline = data_parallel().timeline(90.0, 360.0)
    assert replayed_us(timeline, without=SUM) == 210.0
    assert exposed_times_us(timeline) == {0: 60.0}


def test_what_computation_is_worth_is_that_of_its_part_that_the_step_waits_for() -> None:
    # Of 100 us before the sum, 60 beside it and 30 after it the step waits for 130.
    share = exposed_computation_share(data_parallel().timeline(90.0, 360.0))
    assert share == pytest.approx(130.0 / 190.0)


def host_bound() -> Traced:
    """The host launches a kernel each 100 us, for which the GPU waits: 20 us of each are work."""
    traced = Traced()
    for number in range(5):
        at_us = 100.0 * number
        traced.launch(at_us, at_us + 5.0, at_us + 25.0, kind=0)
    traced.call(450.0, 451.0, HostRole.WAIT_FOR_ALL)
    return traced


def test_a_step_that_waits_for_its_host_has_no_exposed_time() -> None:
    timeline = host_bound().timeline(0.0, 500.0)
    assert replayed_us(timeline) == 500.0
    assert exposed_times_us(timeline) == {0: 0.0}


def test_a_faster_host_exposes_what_the_slower_one_hid() -> None:
    timeline = host_bound().timeline(0.0, 500.0)
    # The host's own time is 499 us, its wait's return 1 us.
    assert replayed_us(timeline, 0.5) == pytest.approx(250.5)
    # With no time of its own it waits for the GPU: for a launch's 5 us and five times 20 of work.
    assert replayed_us(timeline, 0.0) == pytest.approx(106.0)
    assert exposed_times_us(timeline, 0.0) == {0: pytest.approx(100.0)}
    assert exposed_computation_share(timeline, 0.0) == 0.0, "it has no computation"


def test_computation_of_a_step_that_waits_for_its_host_is_worth_nothing() -> None:
    traced = host_bound()
    traced.launch(455.0, 460.0, 470.0)
    assert exposed_computation_share(traced.timeline(0.0, 500.0)) == 0.0


@pytest.mark.parametrize(
    ("step_us", "factor"),
    [(600.0, 1.0), (500.0, 1.0), (495.0, 1.0), (250.5 / 1.02, 0.5), (100.0, 0.0)],
)
def test_the_factor_of_the_host_is_that_of_the_jobs_own_steps(
    step_us: float, factor: float
) -> None:
    """Steps are known within 2 %, and the slowest host counts that fits."""
    timeline = host_bound().timeline(0.0, 500.0)
    assert host_factor_for(timeline, step_us) == pytest.approx(factor, abs=1e-4)


def test_calls_side_by_side_share_what_both_save() -> None:
    """Two calls of 100 us at the same time: each alone saves nothing, both 99 us.

    Without them the host, which waits from 6 us on, goes on at 8 us.
    """
    traced = Traced()
    traced.launch(0.0, 5.0, 105.0, stream=20, kind=0)
    traced.launch(3.0, 5.0, 105.0, stream=30, kind=1)
    traced.call(6.0, 107.0, HostRole.WAIT_FOR_ALL)
    timeline = traced.timeline(0.0, 110.0)
    assert exposed_times_us(timeline) == {0: pytest.approx(49.5), 1: pytest.approx(49.5)}


def test_of_many_kinds_the_short_ones_are_taken_away_together() -> None:
    """Calls one after another, of which each saves its time: those of 1 and 3 us are the rest."""
    traced = Traced()
    begun_us = 100.0
    for kind in range(MOST_ALONE + 2):
        time_us = {0: 1.0, 1: 3.0}.get(kind, 10.0)
        traced.launch(float(kind), begun_us, begun_us + time_us, kind=kind, took_us=0.5)
        begun_us += time_us
    traced.call(50.0, begun_us, HostRole.WAIT_FOR_ALL)
    exposed_us = exposed_times_us(traced.timeline(0.0, begun_us))
    assert exposed_us[0] == pytest.approx(1.0)
    assert exposed_us[1] == pytest.approx(3.0)
    assert [exposed_us[kind] for kind in range(2, MOST_ALONE + 2)] == pytest.approx(
        [10.0] * MOST_ALONE
    )


@pytest.mark.parametrize("steps_behind", [0, 2, 5])
def test_what_was_under_way_when_the_recording_began_does_not_count(steps_behind: int) -> None:
    """The host launches a step in 100 us, for which the GPU takes 120, and is ahead of it.

    Without its sums of 40 us the GPU takes 80 us, and a step the host's 100: 20 us are exposed.
    """
    traced = Traced()
    for number in range(9):
        at_us, begun_us = 100.0 * number, 120.0 * number + 3.0
        traced.launch(at_us, begun_us, begun_us + 80.0)
        traced.launch(at_us + 50.0, begun_us + 80.0, begun_us + 120.0, kind=0)
    begun_us = 100.0 * steps_behind
    timeline = traced.timeline(begun_us, begun_us + 400.0)
    assert replayed_us(timeline) == pytest.approx(480.0)
    assert exposed_times_us(timeline) == {0: pytest.approx(80.0)}


@st.composite
def recordings(draw: st.DrawFn) -> Traced:
    """Recordings that a GPU could have made: each piece begins when all it waits for is done."""
    traced = Traced()
    at_us = 0.0
    free_us: dict[int, float] = {}
    last_end_us = recorded_us = awaited_us = 0.0
    for _ in range(draw(st.integers(1, 14))):
        at_us += draw(st.integers(1, 60))
        step = draw(st.sampled_from(["launch", "launch", "record", "wait", "all"]))
        if step == "launch":
            stream = draw(st.integers(0, 2))
            begun_us = max(at_us + 3.0, free_us.get(stream, 0.0), awaited_us)
            last_end_us = begun_us + draw(st.integers(1, 80))
            kind = draw(st.sampled_from([None, 0, 1]))
            traced.launch(at_us, begun_us, last_end_us, stream, kind, took_us=0.5)
            free_us[stream], awaited_us = last_end_us, 0.0
        elif step == "record":
            traced.call(at_us, at_us + 0.5, HostRole.RECORD)
            recorded_us = last_end_us
        elif step == "wait":
            traced.call(at_us, at_us + 0.5, HostRole.STREAM_WAIT)
            awaited_us = recorded_us
        else:
            ended_us = max(at_us, *free_us.values(), 0.0) + 2.0
            traced.call(at_us, ended_us, HostRole.WAIT_FOR_ALL)
            at_us = ended_us
    at_us += 1.0
    traced.launch(at_us, max(at_us + 3.0, free_us.get(0, 0.0)), at_us + 1500.0, 0)
    traced.call(at_us + 2.0, at_us + 1502.0, HostRole.WAIT_FOR_ALL)
    return traced


@pytest.mark.long
@given(recordings(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_what_a_replay_keeps(traced: Traced, one_factor: float, second_factor: float) -> None:
    end_us = max(call.ended_us for call in traced.calls)
    timeline = traced.timeline(0.0, end_us)
    assert timeline.recorded_us == end_us
    assert replayed_us(timeline) == pytest.approx(end_us, rel=1e-3)
    slow, fast = max(one_factor, second_factor), min(one_factor, second_factor)
    assert replayed_us(timeline, fast) <= replayed_us(timeline, slow) * 1.001
    kinds = frozenset(each.kind for each in timeline.work if each.kind is not None)
    exposed_us = exposed_times_us(timeline, slow)
    assert set(exposed_us) == kinds
    saved_us = replayed_us(timeline, slow) - replayed_us(timeline, slow, kinds)
    assert sum(exposed_us.values()) == pytest.approx(saved_us, rel=1e-3, abs=0.1)
    assert all(us >= 0.0 for us in exposed_us.values())
