"""`Timeline`: recorded work in its order of launch, with what each piece of it waited for.

A trace has begin and end of each kernel and each call of the host, but not what waited for what.
That follows from the order of the host's calls. Work waits for its launch, for the work before it
on its stream, and, where the host had a stream wait for an event, for the last work that was
launched before the event was recorded; where none of these explains its begin, for the work that
ended right before it. What ended after it began is not what it waited for.

Units: microseconds since the timeline's begin.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tuccl.workloads.replays.recorded_events import GpuWork, HostCall, HostRole

_CLOCK_US = 1.0
"""How far the clocks of GPU and host, and of two streams, may disagree."""
_AT_ONCE_US = 20.0
"""Time from the end of work to the begin of what waited for it, at most: launches take less."""
_RETURN_US = 60.0
"""Time from the end of work to the return of the call that waited for it, at most."""
_FULL_QUEUE = 900
"""Launches ahead of the GPU from which on a long launch waits for room: CUDA's queue has 1,024."""
_LONG_LAUNCH_US = 100.0


@dataclass(frozen=True, slots=True)
class Work:
    """Work on a GPU."""

    time_us: float
    kind: int | None
    """As in `GpuWork`."""
    after: tuple[int, ...]
    """Numbers of the work that it waits for."""
    lag_us: float
    """Time from when all that it waited for was done to its begin."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of the host that launches work."""

    at_us: float
    begin: int
    """Number of its first work."""
    end: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A call of the host that returns when work has ended."""

    at_us: float
    ended_us: float
    work: int | None
    """Number of that work; None: all that was launched before."""
    extra_us: float
    """Time from the end of that work, or from the call if that is later, to the return."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The work of a recording, in the order of its launch, and the calls of the host."""

    host_us: float
    """Time from the begin of the first step to the end of the last on the host."""
    work: tuple[Work, ...]
    calls: tuple[Launch | Wait, ...]
    """By time."""


def timeline_of(
    work: Sequence[GpuWork], calls: Sequence[HostCall], begun_us: float, ended_us: float
) -> Timeline | None:
    """Return the timeline of a recording; None: the recording does not tell what was launched when.

    Args:
        work: All work on GPUs, in any order.
        calls: All calls of the host that have a role, in any order.
        begun_us: Begin of the first step; work that is launched before it counts as launched then.
        ended_us: End of the last step on the host; work that is launched later is left out.
    """
    building = _Building(begun_us)
    by_correlation: dict[int, list[GpuWork]] = {}
    in_window = [call for call in calls if begun_us <= call.begun_us <= ended_us]
    launched = {call.correlation for call in calls}
    early = []
    for each in sorted(work, key=_begin):
        if each.correlation is not None and each.correlation in launched:
            by_correlation.setdefault(each.correlation, []).append(each)
        elif begun_us <= each.begun_us <= ended_us:
            early.append(each)
    building.launch_before(early)
    building.know_ends(chain(early, *by_correlation.values()))
    known = len(early)
    for call in sorted(in_window, key=lambda call: (call.begun_us, call.ended_us)):
        own = () if call.correlation is None else by_correlation.pop(call.correlation, ())
        building.take(call, own)
    if len(building.work) == known:
        return None
    return Timeline(ended_us - begun_us, tuple(building.work), tuple(building.calls))


def _begin(work: GpuWork) -> tuple[float, float]:
    return work.begun_us, work.ended_us


@dataclass(slots=True)
class _Building:
    """A timeline up to a call of the host."""

    begun_us: float
    work: list[Work] = field(default_factory=list)
    recorded: list[GpuWork] = field(default_factory=list)
    """The same work as recorded."""
    calls: list[Launch | Wait] = field(default_factory=list)
    last_on_stream: dict[Hashable, int] = field(default_factory=dict)
    last_of_thread: dict[Hashable, int] = field(default_factory=dict)
    at_record: dict[Hashable, int | None] = field(default_factory=dict)
    """By thread, the last work that it had launched when it last recorded an event."""
    awaited: dict[Hashable, list[int]] = field(default_factory=dict)
    """By thread, work that its next launch waits for."""
    ends: list[tuple[float, int]] = field(default_factory=list)
    """Ends of all work, ascending, with its identity."""
    begins: list[float] = field(default_factory=list)
    """Begins of all work, ascending."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Number of work by its identity."""

    def know_ends(self, work: Iterator[GpuWork]) -> None:
        """Learn when all work ends, also what is launched later."""
        pieces = list(work)
        self.ends = sorted((each.ended_us, id(each)) for each in pieces)
        self.begins = sorted(each.begun_us for each in pieces)

    def launch_before(self, work: Sequence[GpuWork]) -> None:
        """Place work that was launched before the timeline begins."""
        if work:
            self.calls.append(Launch(0.0, 0, len(work)))
        for each in work:
            self._place(each, self.begun_us, ())

    def take(self, call: HostCall, work: Sequence[GpuWork]) -> None:
        """Take a call of the host, and the work that it launched."""
        at_us = call.begun_us - self.begun_us
        if work:
            awaited = self.awaited.pop(call.thread, [])
            begin = len(self.work)
            if self._waits_for_room(call):
                self._wait(call, self._last_ended(call, _RETURN_US))
            self.calls.append(Launch(at_us, begin, begin + len(work)))
            for each in work:
                self._place(each, call.begun_us, awaited)
            self.last_of_thread[call.thread] = len(self.work) - 1
            if call.role is HostRole.COPY and call.ended_us >= work[-1].ended_us:
                self._wait(call, len(self.work) - 1)
        match call.role:
            case HostRole.RECORD:
                self.at_record[call.thread] = self.last_of_thread.get(call.thread)
            case HostRole.STREAM_WAIT:
                awaited_work = self.at_record.get(call.thread)
                if awaited_work is not None:
                    self.awaited.setdefault(call.thread, []).append(awaited_work)
            case HostRole.WAIT:
                self._wait_for_some(call)
            case HostRole.WAIT_FOR_ALL:
                self._wait(call, None)

    def _place(self, work: GpuWork, launched_us: float, awaited: Sequence[int]) -> None:
        """Append work with what it waits for."""
        latest_us = work.begun_us + _CLOCK_US
        before = self.last_on_stream.get(work.stream)
        after = {each for each in awaited if self.recorded[each].stream != work.stream}
        after |= set() if before is None else {before}
        after = {each for each in after if self.recorded[each].ended_us <= latest_us}
        ready_us = max([launched_us, *(self.recorded[each].ended_us for each in after)])
        if work.begun_us - ready_us > _AT_ONCE_US:
            found = self._ended_before(work.begun_us + _CLOCK_US, _AT_ONCE_US + _CLOCK_US)
            if found is not None and found not in after:
                after.add(found)
                ready_us = max(ready_us, self.recorded[found].ended_us)
        number = len(self.work)
        time_us, lag_us = work.ended_us - work.begun_us, max(0.0, work.begun_us - ready_us)
        self.work.append(Work(time_us, work.kind, tuple(sorted(after)), lag_us))
        self.recorded.append(work)
        self.numbers[id(work)] = number
        self.last_on_stream[work.stream] = number

    def _wait_for_some(self, call: HostCall) -> None:
        """Take a wait for an event or a stream; which one, no trace says."""
        last = self.last_of_thread.get(call.thread)
        if last is not None and self._ends_within(last, call):
            self._wait(call, last)
            return
        found = self._last_ended(call, _RETURN_US)
        if found is not None and self.recorded[found].ended_us > call.begun_us:
            self._wait(call, found)

    def _ends_within(self, number: int, call: HostCall) -> bool:
        ended_us = self.recorded[number].ended_us
        return ended_us <= call.ended_us + _CLOCK_US

    def _wait(self, call: HostCall, number: int | None) -> None:
        if number is not None:
            done_us = self.recorded[number].ended_us
        else:
            done_us = max((each.ended_us for each in self.recorded), default=call.begun_us)
        extra_us = max(0.0, call.ended_us - max(call.begun_us, done_us))
        at_us, ended_us = call.begun_us - self.begun_us, call.ended_us - self.begun_us
        self.calls.append(Wait(at_us, ended_us, number, extra_us))

    def _waits_for_room(self, call: HostCall) -> bool:
        if call.ended_us - call.begun_us < _LONG_LAUNCH_US:
            return False
        return len(self.work) - bisect_right(self.begins, call.ended_us) >= _FULL_QUEUE

    def _last_ended(self, call: HostCall, within_us: float) -> int | None:
        return self._ended_before(call.ended_us + _CLOCK_US, within_us)

    def _ended_before(self, at_us: float, within_us: float) -> int | None:
        """Return the work, launched by now, that ended last before a time, and not long before."""
        place = bisect_right(self.ends, at_us, key=lambda end: end[0])
        while place > 0 and at_us - self.ends[place - 1][0] <= within_us:
            number = self.numbers.get(self.ends[place - 1][1])
            if number is not None:
                return number
            place -= 1
        return None
