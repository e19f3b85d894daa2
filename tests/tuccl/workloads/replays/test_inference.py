"""Timelines: each piece of recorded work with that which it waited for, by hand."""

from __future__ import annotations

import pytest

from tests.tuccl.workloads.replays.traced import Traced, data_parallel
from tuccl.workloads.replays.inference import timeline_of
from tuccl.workloads.replays.recorded_events import GpuWork, HostCall, HostRole, role_of
from tuccl.workloads.replays.timeline import Launch, Timeline, Wait


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cudaLaunchKernel", HostRole.LAUNCH),
        ("cuLaunchKernelEx", HostRole.LAUNCH),
        ("hipExtLaunchKernel", HostRole.LAUNCH),
        ("cudaGraphLaunch", HostRole.LAUNCH),
        ("cudaMemsetAsync", HostRole.LAUNCH),
        ("INVALID", HostRole.LAUNCH),
        ("cudaMemcpyAsync", HostRole.ASYNC_COPY),
        ("cudaMemcpy", HostRole.COPY),
        ("hipMemcpyWithStream", HostRole.COPY),
        ("cudaEventRecordWithFlags", HostRole.RECORD),
        ("cudaStreamWaitEvent", HostRole.STREAM_WAIT),
        ("cudaEventSynchronize", HostRole.WAIT_FOR_EVENT),
        ("cudaStreamSynchronize", HostRole.WAIT_FOR_STREAM),
        ("cudaDeviceSynchronize", HostRole.WAIT_FOR_ALL),
        ("cuCtxSynchronize", HostRole.WAIT_FOR_ALL),
        ("hipFree", HostRole.FREE),
        ("cudaFreeHost", HostRole.FREE),
        ("cudaFreeAsync", None),
        ("cudaEventQuery", None),
        ("cudaMalloc", None),
    ],
)
def test_roles_of_calls(name: str, role: HostRole | None) -> None:
    assert role_of(name) is role


def waits_of(timeline: Timeline) -> list[tuple[float, tuple[int, ...], float]]:
    """Return of each wait its begin, its work, and the time from that to its return."""
    found = [call for call in timeline.calls if isinstance(call, Wait)]
    return [(call.at_us, call.work, call.extra_us) for call in found]


def test_work_waits_for_its_launch_its_stream_and_its_events() -> None:
    timeline = data_parallel().timeline(90.0, 360.0)
    assert [work.after for work in timeline.work] == [(), (0,), (0,), (1, 2)]
    # The first of each stream follows the last of that stream in the steps before.
    assert [work.after_before for work in timeline.work] == [(3,), (1,), (), ()]
    assert [work.time_us for work in timeline.work] == [100.0, 120.0, 60.0, 30.0]
    assert [work.kind for work in timeline.work] == [None, 0, None, None]
    # The first begins 2 us after its launch, the others when what they wait for ends.
    assert [work.launch_lag_us for work in timeline.work] == [2.0, 0.0, 0.0, 0.0]
    assert [work.lag_us for work in timeline.work] == [0.0, 0.0, 0.0, 0.0]
    assert (timeline.host_us, timeline.recorded_us) == (270.0, 270.0)
    assert timeline.calls == (
        Launch(8.0, 0, 1),
        Launch(13.0, 1, 2),
        Launch(16.0, 2, 3),
        Launch(20.0, 3, 4),
        Wait(30.0, 262.0, (1, 3), (), 2.0),
    )


@pytest.mark.parametrize("has_records", [True, False])
@pytest.mark.parametrize("launching", [1, 2])
def test_events_are_waited_for_by_the_next_launch_of_any_thread(
    has_records: bool, launching: int
) -> None:
    """A sum that ended long before; HIP's traces may lack the records of events."""
    traced = Traced()
    if has_records:
        traced.call(0.5, 0.6, HostRole.RECORD)
    traced.launch(1.0, 5.0, 100.0, stream=20, kind=0)
    traced.launch(3.0, 5.0, 50.0)
    if has_records:
        traced.calls.append(HostCall(3.5, 3.6, 2, HostRole.RECORD, None))
        traced.launch(4.0, 200.0, 300.0, stream=20, kind=0)
        traced.call(6.5, 6.6, HostRole.RECORD)
    traced.call(7.0, 7.5, HostRole.STREAM_WAIT)
    traced.launch(400.0, 405.0, 420.0, thread=launching)
    last = traced.timeline(0.0, 500.0).work[-1]
    assert last.after == ((1, 2) if has_records else (0, 1))
    traced.launch(430.0, 435.0, 440.0)
    assert traced.timeline(0.0, 500.0).work[-1].after == (len(traced.work) - 2,)


def test_an_event_that_had_not_come_is_none_that_was_waited_for() -> None:
    """A gather that is prefetched runs on; the computation waited for the one before it."""
    traced = Traced()
    for begun_us, ended_us in ((5.0, 100.0), (100.0, 300.0)):
        traced.launch(begun_us - 4.0, begun_us, ended_us, stream=20, kind=0)
        traced.call(begun_us, begun_us + 0.1, HostRole.RECORD)
    traced.call(101.0, 101.5, HostRole.STREAM_WAIT)
    traced.launch(150.0, 155.0, 400.0)
    assert traced.timeline(0.0, 500.0).work[2].after == (0,)


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
    assert [each.lag_us for each in work] == [0.0, 0.0, 1.0, 0.0, 0.0]
    # Nothing ended near 900: the time from its launch is a delay of its own.
    assert [each.launch_lag_us for each in work] == [10.0, 7.0, 0.0, 3.0, 888.0]


def test_work_that_begins_before_the_end_of_that_before_it_still_follows_it() -> None:
    """A kernel that launches early overlaps by 3 us; branches of a graph by more."""
    traced = Traced()
    traced.launch(0.0, 5.0, 1000.0)
    traced.launch(3.0, 997.0, 1500.0)
    traced.launch(6.0, 1000.0, 1200.0)
    work = traced.timeline(0.0, 1600.0).work
    assert [each.after for each in work] == [(), (0,), (0,)]
    assert [each.lag_us for each in work] == [0.0, -3.0, 0.0]


def test_the_host_waits_for_an_event_only_where_work_ended_meanwhile() -> None:
    traced = Traced()
    traced.launch(0.0, 5.0, 100.0)
    traced.call(10.0, 103.0, HostRole.WAIT_FOR_EVENT)
    # A gather of 1,000 us, and work that ends long before the host goes on.
    traced.launch(110.0, 115.0, 1115.0, stream=20, kind=0)
    traced.launch(113.0, 115.0, 180.0)
    traced.call(120.0, 1117.0, HostRole.WAIT_FOR_EVENT)
    # At once: nothing ended meanwhile.
    traced.call(1200.0, 1202.0, HostRole.WAIT_FOR_EVENT)
    assert waits_of(traced.timeline(0.0, 1300.0)) == [(10.0, (0,), 3.0), (120.0, (1,), 2.0)]


def test_the_host_waits_for_the_stream_of_its_last_launch() -> None:
    traced = Traced()
    traced.launch(0.0, 5.0, 50.0)
    traced.call(80.0, 82.0, HostRole.WAIT_FOR_STREAM)
    traced.launch(100.0, 105.0, 900.0, stream=20)
    traced.launch(103.0, 105.0, 200.0)
    traced.call(110.0, 903.0, HostRole.WAIT_FOR_STREAM)
    assert waits_of(traced.timeline(0.0, 1000.0)) == [(80.0, (0,), 2.0), (110.0, (1,), 3.0)]


def test_a_wait_for_a_gpu_is_not_for_another() -> None:
    """Stream 30 is of a GPU whose work goes on; another thread launches while this one waits."""
    traced = Traced()
    traced.launch(0.0, 5.0, 100.0)
    traced.launch(3.0, 5.0, 500.0, stream=30)
    traced.call(10.0, 102.0, HostRole.WAIT_FOR_ALL)
    traced.launch(50.0, 55.0, 60.0, stream=40, thread=2)
    timeline = traced.timeline(0.0, 600.0)
    assert waits_of(timeline) == [(10.0, (0, 2), 2.0)]
    assert [type(call) for call in timeline.calls] == [Launch, Launch, Launch, Wait]


def test_memory_is_freed_when_the_work_has_ended() -> None:
    traced = Traced()
    traced.launch(0.0, 5.0, 100.0)
    traced.call(10.0, 104.0, HostRole.FREE)
    traced.call(200.0, 300.0, HostRole.FREE)
    assert waits_of(traced.timeline(0.0, 400.0)) == [(10.0, (0,), 4.0)]


def test_copies_that_return_after_their_end_are_waits() -> None:
    traced = Traced()
    traced.launch(10.0, 50.0, 60.0, role=HostRole.COPY, took_us=55.0)
    # Of memory that is not pinned, and of memory that is.
    traced.launch(70.0, 75.0, 175.0, role=HostRole.ASYNC_COPY, took_us=107.0)
    traced.launch(200.0, 201.0, 202.0, role=HostRole.ASYNC_COPY, took_us=3.0)
    assert waits_of(traced.timeline(0.0, 300.0)) == [(10.0, (0,), 5.0), (70.0, (1,), 2.0)]


@pytest.mark.parametrize(("ahead", "waits"), [(1000, True), (800, False)])
def test_a_long_launch_into_a_full_queue_is_a_wait(ahead: int, waits: bool) -> None:
    """So many launches are ahead of the GPU; the last returns 1 us after the first's end."""
    traced = Traced()
    for number in range(ahead):
        begun_us = 5000.0 + 10.0 * number
        traced.launch(float(number), begun_us, begun_us + 10.0, took_us=0.5)
    end_us = 5000.0 + 10.0 * ahead
    traced.launch(2000.0, end_us, end_us + 10.0, took_us=3011.0)
    # 1,000 launches but one are ahead when the first of them has ended.
    found = waits_of(traced.timeline(0.0, end_us + 100.0))
    assert found == ([(2000.0, (0,), 1.0)] if waits else [])


def test_a_graph_is_one_launch_of_much_work() -> None:
    traced = Traced()
    traced.launch(0.0, 5.0, 6.0)
    for number in range(1000):
        traced.work.append(GpuWork(6.0 + number, 7.0 + number, 7, 1))
    traced.launch(300.0, 1010.0, 1020.0, took_us=200.0)
    timeline = traced.timeline(0.0, 2000.0)
    assert timeline.calls == (Launch(0.0, 0, 1001), Launch(300.0, 1001, 1002))
    assert timeline.work[1000].after == (999,)


def test_earlier_work_is_waited_for_as_that_of_the_steps_before() -> None:
    """Work of before the window, launched in the trace or not, is no part of the timeline."""
    traced = Traced()
    traced.launch(10.0, 20.0, 60.0)
    traced.launch(50.0, 60.0, 70.0)
    traced.launch(400.0, 410.0, 420.0)
    unlaunched = GpuWork(60.0, 95.0, 20, None)
    traced.launch(55.0, 95.0, 99.0, stream=20)
    traced.call(80.0, 100.0, HostRole.WAIT_FOR_ALL)
    timeline = timeline_of([*traced.work, unlaunched], traced.calls, 35.0, 300.0)
    assert timeline is not None
    assert [(work.after, work.after_before) for work in timeline.work] == [((), (0,)), ((), (1,))]
    assert timeline.calls == (
        Launch(15.0, 0, 1),
        Launch(20.0, 1, 2),
        Wait(45.0, 65.0, (0, 1), (), 1.0),
    )


def test_a_recording_without_launches_has_no_timeline() -> None:
    work = [GpuWork(5.0, 9.0, 7, None), GpuWork(9.0, 12.0, 7, 3)]
    call = HostCall(1.0, 2.0, 1, HostRole.LAUNCH, 99)
    assert timeline_of(work, [call], 0.0, 20.0) is None
    assert timeline_of(work, [], 0.0, 20.0) is None


def test_an_event_is_behind_the_work_of_the_thread_that_records_it() -> None:
    """Thread 2 launches between; the clocks of two streams differ by half a microsecond."""
    traced = Traced()
    traced.launch(1.0, 5.0, 100.5, stream=20, kind=0)
    traced.launch(2.0, 5.0, 50.0, thread=2)
    traced.call(4.0, 4.1, HostRole.RECORD)
    traced.call(5.0, 5.1, HostRole.STREAM_WAIT)
    traced.launch(6.0, 100.0, 200.0, stream=30)
    work = traced.timeline(0.0, 300.0).work[2]
    assert (work.after, work.lag_us) == ((0,), -0.5)


def test_work_without_a_launch_counts_as_earlier_only_before_the_first_that_has_one() -> None:
    traced = Traced()
    traced.launch(1.0, 5.0, 10.0)
    traced.launch(50.0, 60.0, 70.0)
    unlaunched = GpuWork(20.0, 30.0, 7, None)
    timeline = timeline_of([*traced.work, unlaunched], traced.calls, 0.0, 100.0)
    assert timeline is not None
    assert [work.after for work in timeline.work] == [(), (0,)]
