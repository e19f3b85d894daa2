"""Timelines: what each piece of recorded work waited for, by hand."""

from __future__ import annotations

import pytest

from tests.tuccl.workloads.replays.traced import Traced, data_parallel
from tuccl.workloads.replays.recorded_events import GpuWork, HostCall, HostRole, role_of
from tuccl.workloads.replays.timeline import Launch, Wait, timeline_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cudaLaunchKernel", HostRole.LAUNCH),
        ("cuLaunchKernelEx", HostRole.LAUNCH),
        ("hipExtLaunchKernel", HostRole.LAUNCH),
        ("cudaGraphLaunch", HostRole.LAUNCH),
        ("cudaMemsetAsync", HostRole.LAUNCH),
        ("INVALID", HostRole.LAUNCH),
        ("cudaMemcpyAsync", HostRole.COPY),
        ("hipMemcpyWithStream", HostRole.COPY),
        ("cudaEventRecordWithFlags", HostRole.RECORD),
        ("cudaStreamWaitEvent", HostRole.STREAM_WAIT),
        ("cudaEventSynchronize", HostRole.WAIT),
        ("cudaStreamSynchronize", HostRole.WAIT),
        ("cudaDeviceSynchronize", HostRole.WAIT_FOR_ALL),
        ("cuCtxSynchronize", HostRole.WAIT_FOR_ALL),
        ("cudaEventQuery", None),
        ("cudaMalloc", None),
    ],
)
def test_roles_of_calls(name: str, role: HostRole | None) -> None:
    assert role_of(name) is role


def test_work_waits_for_its_launch_its_stream_and_its_events() -> None:
    timeline = data_parallel().timeline(90.0, 360.0)
    assert [work.after for work in timeline.work] == [(), (0,), (0,), (1, 2)]
    assert [work.time_us for work in timeline.work] == [100.0, 120.0, 60.0, 30.0]
    assert [work.kind for work in timeline.work] == [None, 0, None, None]
    # The first begins 2 us after its launch, the others when what they wait for ends.
    assert [work.lag_us for work in timeline.work] == [2.0, 0.0, 0.0, 0.0]
    assert timeline.host_us == 270.0
    assert timeline.calls == (
        Launch(8.0, 0, 1),
        Launch(13.0, 1, 2),
        Launch(16.0, 2, 3),
        Launch(20.0, 3, 4),
        Wait(30.0, 262.0, None, 2.0),
    )


def test_work_that_ended_later_is_not_waited_for() -> None:
    """The event's work ends after what follows has begun: the order of calls does not hold it."""
    traced = Traced()
    traced.launch(0.0, 10.0, 200.0)
    traced.call(3.0, 3.5, HostRole.RECORD)
    traced.call(4.0, 4.5, HostRole.STREAM_WAIT)
    traced.launch(5.0, 20.0, 90.0, stream=20)
    assert traced.timeline(0.0, 300.0).work[1].after == ()


def test_what_ended_right_before_explains_a_begin_that_nothing_else_does() -> None:
    """Work on a third stream begins long after its launch, at the end of work on the second."""
    traced = Traced()
    traced.launch(0.0, 10.0, 50.0)
    traced.launch(3.0, 10.0, 400.0, stream=20)
    traced.launch(6.0, 401.0, 420.0, stream=30)
    traced.launch(9.0, 12.0, 30.0, stream=40)
    traced.launch(12.0, 900.0, 950.0, stream=50)
    work = traced.timeline(0.0, 1000.0).work
    assert [each.after for each in work] == [(), (), (1,), (), ()]
    # Nothing ended near 900: the time from its launch is a delay of its own.
    assert [each.lag_us for each in work] == [10.0, 7.0, 1.0, 3.0, 888.0]


def test_the_host_waits_for_its_last_launch_or_what_ended_meanwhile() -> None:
    traced = Traced()
    traced.launch(0.0, 5.0, 100.0)
    traced.call(10.0, 103.0, HostRole.WAIT)
    traced.launch(110.0, 115.0, 300.0)
    traced.launch(113.0, 115.0, 180.0, stream=20)
    traced.launch(116.0, 310.0, 600.0)
    traced.call(120.0, 182.0, HostRole.WAIT)
    traced.call(190.0, 191.0, HostRole.WAIT)
    waits = [call for call in traced.timeline(0.0, 700.0).calls if isinstance(call, Wait)]
    # The last wait returns at once: for what had ended long before, which takes no time.
    assert waits == [Wait(10.0, 103.0, 0, 3.0), Wait(120.0, 182.0, 2, 2.0)]


def test_a_copy_that_returns_after_its_end_is_a_wait() -> None:
    traced = Traced()
    traced.launch(0.0, 5.0, 50.0)
    traced.launch(10.0, 50.0, 60.0, role=HostRole.COPY, took_us=55.0)
    traced.launch(70.0, 75.0, 95.0, role=HostRole.COPY, took_us=3.0)
    calls = traced.timeline(0.0, 100.0).calls
    assert calls[2] == Wait(10.0, 65.0, 1, 5.0)
    assert [type(call) for call in calls] == [Launch, Launch, Wait, Launch]


@pytest.mark.parametrize(("ahead", "waits"), [(1000, True), (800, False)])
def test_a_long_launch_into_a_full_queue_is_a_wait(ahead: int, waits: bool) -> None:
    """So many launches are ahead of the GPU; the last returns 1 us after the first's end."""
    traced = Traced()
    for number in range(ahead):
        begun_us = 5000.0 + 10.0 * number
        traced.launch(float(number), begun_us, begun_us + 10.0, took_us=0.5)
    end_us = 5000.0 + 10.0 * ahead
    traced.launch(2000.0, end_us, end_us + 10.0, took_us=3011.0)
    timeline = traced.timeline(0.0, end_us + 100.0)
    # 1,000 launches but one are ahead when the first of them has ended.
    found = [call for call in timeline.calls if isinstance(call, Wait)]
    assert found == ([Wait(2000.0, 5011.0, 0, 1.0)] if waits else [])


def test_work_of_before_the_steps_counts_as_launched_at_their_begin() -> None:
    traced = Traced()
    traced.launch(10.0, 20.0, 30.0)
    traced.launch(50.0, 60.0, 70.0)
    traced.launch(400.0, 410.0, 420.0)
    unlaunched = GpuWork(40.0, 55.0, 7, None)
    timeline = timeline_of([*traced.work, unlaunched], traced.calls, 35.0, 300.0)
    assert timeline is not None
    assert timeline.calls == (Launch(0.0, 0, 1), Launch(15.0, 1, 2))
    assert [work.lag_us for work in timeline.work] == [5.0, 5.0]


def test_a_recording_without_launches_has_no_timeline() -> None:
    work = [GpuWork(5.0, 9.0, 7, None), GpuWork(9.0, 12.0, 7, 3)]
    call = HostCall(1.0, 2.0, 1, HostRole.LAUNCH, 99)
    assert timeline_of(work, [call], 0.0, 20.0) is None
    assert timeline_of(work, [], 0.0, 20.0) is None
