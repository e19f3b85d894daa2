"""`timeline_of`: what each piece of recorded work waited for, by the order of the host's calls.

A trace has begin and end of each kernel and each call of the host, but, unless the profiler was
told to record synchronization, not what waited for what. Work waits for its launch, for the work
before it on its stream, and, where the host had a stream wait for an event, for work that was
launched before an event on another stream; where none of these explains its begin, for the work
that ended right before it. What ended later is not what it waited for.

Units: microseconds, on the trace's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Sequence

from tuccl.workloads.replays.recorded_events import WAITS, GpuWork, HostCall, HostRole
from tuccl.workloads.replays.timeline import Launch, Timeline, TimelineWork, Wait

_CLOCK_US = 1.0
"""How far the clocks of GPU and host, and of two streams, may disagree."""
_AT_ONCE_US = 20.0
"""Time from the end of work to the begin of what waited for it, at most: launches take less. Work
may begin as much before the end of that before it on its stream: kernels that launch early."""
_RETURN_US = 60.0
"""Time from the end of work to the return of the call that waited for it, at most."""
_QUEUE = 1024
"""Launches that CUDA's queue holds."""
_FULL_QUEUE = 900
"""Launches ahead of the GPU from which on a long launch waits for room."""
_LONG_LAUNCH_US = 100.0


def timeline_of(
    work: Sequence[GpuWork], calls: Sequence[HostCall], begun_us: float, ended_us: float
) -> Timeline | None:
    """Return the timeline of a recording; None: the recording does not tell what was launched when.

    Args:
        work: All work on GPUs, in any order.
        calls: All calls of the host that have a role, in any order.
        begun_us: Begin of the first step. What was launched before is not part of the timeline:
            where it is waited for, work of the same stream in the steps before takes its place.
        ended_us: End of the last step on the host; work that is launched later is left out.
    """
    in_window = sorted((call for call in calls if begun_us <= call.begun_us < ended_us), key=_turn)
    numbers = {call.correlation for call in in_window if call.role not in WAITS}
    by_launch: dict[int, list[GpuWork]] = {}
    others = []
    first_us: dict[Hashable, float] = {}
    for each in sorted(work, key=_begin):
        if each.correlation is not None and each.correlation in numbers:
            by_launch.setdefault(each.correlation, []).append(each)
            first_us.setdefault(each.stream, each.begun_us)
        elif each.ended_us > begun_us:
            others.append(each)
    if not by_launch:
        return None
    early = [each for each in others if each.begun_us < first_us.get(each.stream, ended_us)]
    launched = [each for pieces in by_launch.values() for each in pieces]
    has_records = any(call.role is HostRole.RECORD for call in calls)
    inference = _Inference(early, launched, begun_us, has_records=has_records)
    for call in in_window:
        own = () if call.correlation is None else by_launch.pop(call.correlation, ())
        inference.take(call, own)
    return inference.timeline(ended_us)


def _begin(work: GpuWork) -> tuple[float, float]:
    return work.begun_us, work.ended_us


def _turn(call: HostCall) -> tuple[float, float]:
    """Return when a call acts: other threads launch work while one waits."""
    return (call.ended_us if call.role in WAITS else call.begun_us), call.ended_us


class _Inference:
    """The work up to a call of the host, and what it waited for.

    Work has a number in the order of its launch; that of before the window comes first.
    """

    def __init__(
        self,
        early: Sequence[GpuWork],
        launched: Iterable[GpuWork],
        begun_us: float,
        *,
        has_records: bool,
    ) -> None:
        self._begun_us = begun_us
        self._marks_all = not has_records
        """Without records of events each launch may be what a stream waits for."""
        self._pieces: list[GpuWork] = []
        self._after: list[frozenset[int]] = []
        self._lags_us: list[tuple[float, float]] = []
        """From launch to begin, and from the end of what it waited for."""
        self._calls: list[Launch | tuple[HostCall, frozenset[int]]] = []
        self._last_on_stream: dict[Hashable, int] = {}
        self._last_of_thread: dict[Hashable, int] = {}
        self._marked: dict[Hashable, tuple[list[float], list[int]]] = {}
        """By stream, ends and numbers of the work before its events."""
        self._stream_waits = 0
        """Waits for events that the next launch has to keep."""
        self._begins_ahead: deque[float] = deque(maxlen=_QUEUE)
        self._numbers: dict[int, int] = {}
        self._ends = sorted((each.ended_us, id(each)) for each in (*early, *launched))
        """Ends of all work, also of what is launched later, with its identity."""
        for each in early:
            self._append(each, frozenset(), (0.0, 0.0))
        self._early = len(self._pieces)

    def take(self, call: HostCall, work: Sequence[GpuWork]) -> None:
        """Take a call of the host, and the work that it launched."""
        if work:
            self._launch(call, work)
        match call.role:
            case HostRole.RECORD:
                last = self._last_of_thread.get(call.thread)
                if last is not None:
                    self._mark(last)
            case HostRole.STREAM_WAIT:
                self._stream_waits += 1
            case HostRole.WAIT_FOR_EVENT:
                self._wait(call, self._awaited_event(call))
            case HostRole.WAIT_FOR_STREAM:
                self._wait(call, self._awaited_stream(call))
            case HostRole.WAIT_FOR_ALL:
                self._wait(call, self._ended_streams(call))
            case HostRole.FREE:
                if self._ended_meanwhile(call) is not None:
                    self._wait(call, self._ended_streams(call))

    def timeline(self, ended_us: float) -> Timeline:
        """Return the timeline."""
        early, begun_us = self._early, self._begun_us
        last_on_stream = {
            stream: number - early
            for stream, number in self._last_on_stream.items()
            if number >= early
        }
        work = []
        seen: set[Hashable] = set()
        for number in range(early, len(self._pieces)):
            piece = self._pieces[number]
            own, before = self._parted(self._after[number], last_on_stream)
            if piece.stream not in seen:
                seen.add(piece.stream)
                before |= {last_on_stream[piece.stream]}
            launch_lag_us, lag_us = self._lags_us[number]
            time_us = piece.ended_us - piece.begun_us
            ordered = tuple(sorted(own)), tuple(sorted(before))
            work.append(
                TimelineWork(time_us, piece.kind, *ordered, launch_lag_us, lag_us, piece.is_copy)
            )
        calls: list[Launch | Wait] = []
        for each in self._calls:
            if isinstance(each, Launch):
                calls.append(each)
                continue
            call, awaited = each
            done_us = max(self._pieces[number].ended_us for number in awaited)
            extra_us = max(0.0, call.ended_us - max(call.begun_us, done_us))
            own, before = self._parted(awaited, last_on_stream)
            times_us = call.begun_us - begun_us, call.ended_us - begun_us
            calls.append(Wait(*times_us, tuple(sorted(own)), tuple(sorted(before)), extra_us))
        gpu_us = max(piece.ended_us for piece in self._pieces[early:]) - begun_us
        host_us = ended_us - begun_us
        return Timeline(host_us, max(host_us, gpu_us), tuple(work), tuple(calls))

    def _parted(
        self, numbers: Iterable[int], last_on_stream: dict[Hashable, int]
    ) -> tuple[set[int], set[int]]:
        """Return numbers in the timeline, and those in the pass before for earlier work."""
        own = {number - self._early for number in numbers if number >= self._early}
        streams = (self._pieces[number].stream for number in numbers if number < self._early)
        return own, {last_on_stream[each] for each in streams if each in last_on_stream}

    def _launch(self, call: HostCall, work: Sequence[GpuWork]) -> None:
        if self._waits_for_room(call):
            found = self._ended_meanwhile(call)
            self._wait(call, () if found is None else (found,))
        begin = len(self._pieces) - self._early
        self._calls.append(Launch(call.begun_us - self._begun_us, begin, begin + len(work)))
        self._begins_ahead.append(work[0].begun_us)
        waits, self._stream_waits = self._stream_waits, 0
        streams: set[Hashable] = set()
        for each in work:
            self._place(each, call.begun_us, 0 if each.stream in streams else waits)
            streams.add(each.stream)
        last = len(self._pieces) - 1
        self._last_of_thread[call.thread] = last
        has_waited = call.ended_us - call.begun_us > _RETURN_US
        if call.role is HostRole.COPY or (call.role is HostRole.ASYNC_COPY and has_waited):
            self._wait(call, (last,) if self._ends_by(last, call.ended_us) else ())

    def _place(self, work: GpuWork, launched_us: float, stream_waits: int) -> None:
        """Append work with what it waits for."""
        after: set[int] = set()
        last = self._last_on_stream.get(work.stream)
        if last is not None:
            overlaps = self._pieces[last].ended_us > work.begun_us + _AT_ONCE_US
            after |= self._after[last] if overlaps else {last}
        if stream_waits:
            after |= self._marked_before(work, stream_waits)
        done_us = max((self._pieces[number].ended_us for number in after), default=launched_us)
        if work.begun_us - max(done_us, launched_us) > _AT_ONCE_US:
            found = self._ended_before(work.begun_us + _CLOCK_US, _AT_ONCE_US + _CLOCK_US)
            if found is not None:
                after.add(found)
                done_us = max(done_us, self._pieces[found].ended_us)
        if done_us > launched_us:
            lags_us = 0.0, work.begun_us - done_us
        else:
            lags_us = max(0.0, work.begun_us - launched_us), 0.0
        self._append(work, frozenset(after), lags_us)

    def _append(self, work: GpuWork, after: frozenset[int], lags_us: tuple[float, float]) -> None:
        number = len(self._pieces)
        self._pieces.append(work)
        self._after.append(after)
        self._lags_us.append(lags_us)
        self._numbers[id(work)] = number
        self._last_on_stream[work.stream] = number
        if self._marks_all:
            self._mark(number)

    def _mark(self, number: int) -> None:
        """Remember that an event was recorded behind this work."""
        piece = self._pieces[number]
        ends, numbers = self._marked.setdefault(piece.stream, ([], []))
        ends.append(max(piece.ended_us, ends[-1] if ends else piece.ended_us))
        numbers.append(number)

    def _marked_before(self, work: GpuWork, most: int) -> set[int]:
        """Return the latest marked work of other streams, of so many, that had ended by then."""
        found = []
        for stream, (ends, numbers) in self._marked.items():
            place = bisect_right(ends, work.begun_us + _CLOCK_US)
            if stream != work.stream and place > 0:
                found.append(numbers[place - 1])
        return set(sorted(found, reverse=True)[:most])

    def _awaited_event(self, call: HostCall) -> Collection[int]:
        """Return the work before an event, if the host had to wait for that; else nothing."""
        last = self._last_of_thread.get(call.thread)
        if last is not None and self._ends_by(last, call.ended_us):
            ended_us = self._pieces[last].ended_us
            if ended_us >= max(call.begun_us - _CLOCK_US, call.ended_us - _RETURN_US):
                return (last,)
        found = self._ended_meanwhile(call)
        return () if found is None else (found,)

    def _awaited_stream(self, call: HostCall) -> Collection[int]:
        """Return the last work of a stream: that of the thread's last launch, if it fits."""
        last = self._last_of_thread.get(call.thread)
        is_long = call.ended_us - call.begun_us > _RETURN_US
        if last is not None and self._ends_by(last, call.ended_us):
            is_late = self._pieces[last].ended_us >= call.ended_us - _RETURN_US
            if is_late or not is_long:
                return (last,)
        found = self._ended_meanwhile(call)
        return () if found is None else (found,)

    def _ended_streams(self, call: HostCall) -> Collection[int]:
        """Return the last work of each stream that had none left when the call returned."""
        lasts = self._last_on_stream.values()
        return [number for number in lasts if self._ends_by(number, call.ended_us)]

    def _ended_meanwhile(self, call: HostCall) -> int | None:
        """Return the work that ended last within a call, right before its return."""
        found = self._ended_before(call.ended_us + _CLOCK_US, _RETURN_US)
        is_within = found is not None and self._pieces[found].ended_us > call.begun_us
        return found if is_within else None

    def _ends_by(self, number: int, at_us: float) -> bool:
        return self._pieces[number].ended_us <= at_us + _CLOCK_US

    def _ended_before(self, at_us: float, within_us: float) -> int | None:
        """Return the work, launched by now, that ended last before a time, and not long before."""
        place = bisect_right(self._ends, at_us, key=lambda end: end[0])
        while place > 0 and at_us - self._ends[place - 1][0] <= within_us:
            number = self._numbers.get(self._ends[place - 1][1])
            if number is not None:
                return number
            place -= 1
        return None

    def _waits_for_room(self, call: HostCall) -> bool:
        if call.ended_us - call.begun_us < _LONG_LAUNCH_US:
            return False
        return sum(begun_us > call.ended_us for begun_us in self._begins_ahead) >= _FULL_QUEUE

    def _wait(self, call: HostCall, awaited: Collection[int]) -> None:
        if awaited:
            self._calls.append((call, frozenset(awaited)))
