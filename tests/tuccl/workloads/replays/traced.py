"""Recorded events of a process, as tests write them by hand."""

from __future__ import annotations

from tuccl.workloads.replays.inference import timeline_of
from tuccl.workloads.replays.recorded_events import GpuWork, HostCall, HostRole
from tuccl.workloads.replays.timeline import Timeline


class Traced:
    """A recording of one process; times in microseconds."""

    def __init__(self) -> None:
        self.work: list[GpuWork] = []
        self.calls: list[HostCall] = []

    def launch(
        self,
        at_us: float,
        begun_us: float,
        ended_us: float,
        stream: int = 7,
        kind: int | None = None,
        *,
        took_us: float = 2.0,
        role: HostRole = HostRole.LAUNCH,
        thread: int = 1,
    ) -> None:
        """The host launches work at a time, which runs from a time to a time."""
        correlation = len(self.calls) + 1
        self.calls.append(HostCall(at_us, at_us + took_us, thread, role, correlation))
        self.work.append(GpuWork(begun_us, ended_us, stream, correlation, kind))

    def call(self, at_us: float, ended_us: float, role: HostRole, *, thread: int = 1) -> None:
        """The host makes a call that launches nothing."""
        self.calls.append(HostCall(at_us, ended_us, thread, role, None))

    def timeline(self, begun_us: float, ended_us: float) -> Timeline:
        """Return the timeline of these events."""
        found = timeline_of(self.work, self.calls, begun_us, ended_us)
        assert found is not None
        return found


def data_parallel() -> Traced:
    """A step in which a sum of gradients (kind 0) runs beside computation.

    Stream 7 computes from 100 to 200 and from 200 to 260, stream 20 sums from 200 to 320 what the
    first made, the optimizer waits for that and runs from 320 to 350, and the host for all at 60.
    """
    traced = Traced()
    traced.launch(98.0, 100.0, 200.0)
    traced.call(101.0, 101.5, HostRole.RECORD)
    traced.call(102.0, 102.5, HostRole.STREAM_WAIT)
    traced.launch(103.0, 200.0, 320.0, stream=20, kind=0)
    traced.launch(106.0, 200.0, 260.0)
    traced.call(107.0, 107.5, HostRole.RECORD)
    traced.launch(110.0, 320.0, 350.0)
    traced.call(120.0, 352.0, HostRole.WAIT_FOR_ALL)
    return traced
