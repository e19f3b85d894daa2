"""Times of a trace's calls, how much of them the steps wait for, and the computation beside them.

Units: microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tuccl.workloads.recordings.observed_calls import CallTime, TimeSum
from tuccl.workloads.replays.exposed import exposed_computation_share, exposed_times_us
from tuccl.workloads.replays.inference import timeline_of
from tuccl.workloads.replays.recorded_events import WAITS, GpuWork, HostCall
from tuccl.workloads.replays.replay import host_factor_for, replayed_us
from tuccl.workloads.replays.timeline import Timeline
from tuccl.workloads.replays.uncovered import Span, computed_times_us, uncovered_times_us

UNNAMED_KIND = -1
"""The kind of NCCL's kernels whose call the trace does not name."""
_SLOWER_HOST = 0.1
"""Share of the steps' time that a faster host would save, from which on its speed matters."""
_HALF = 0.5
_UNKNOWN_HOST = (
    "the GPU waits for the host, and the profiler slows the host: give the time of a step without "
    "the profiler (--step-time), or calls seem to matter less than they do"
)
_NOT_REPLAYED = "a call counts as long as nothing else runs on its GPU, and --step-time is not used"
_MOST_LONGER = 0.05
"""Share by which a replay may take longer than what was recorded."""
MOST_REPLAYED = 100_000
"""Calls that launch or order work in the steps that are replayed, some forty times."""
_MS_US = 1000.0


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a trace."""

    begun_us: float
    """Begin of the first; infinite: none is marked."""
    ended_us: float
    number: float | None
    """None: unknown."""
    step_us: float | None
    """Time of a step of the job without the profiler; None: unknown."""
    ends_us: tuple[float, ...] = ()
    """Ends of the steps, ascending."""

    def until(self, ended_us: float) -> Steps:
        """Return the whole steps up to a time; without any, the part up to that time."""
        whole = self.ends_us[: bisect_right(self.ends_us, ended_us)]
        ended_us = whole[-1] if whole else ended_us
        share = (ended_us - self.begun_us) / (self.ended_us - self.begun_us)
        number = None if self.number is None else share * self.number
        return Steps(self.begun_us, ended_us, number, self.step_us, whole)


Sums = dict[int, TimeSum]
"""Times by the number of the calls' kind."""


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Times of the calls of a trace."""

    sums: dict[CallTime, Sums]
    """The times that are known; of computation how long the GPU takes for what it computes beside
    the calls, if it does nothing else."""
    notes: tuple[str, ...] = ()
    """Notes for people on what the trace cannot tell."""


def call_times(
    work: Sequence[GpuWork],
    calls: Sequence[HostCall],
    steps: Steps,
    multiprocessors: int | None = None,
) -> CallTimes:
    """Return the times of a trace's calls.

    Args:
        work: What ran on GPUs.
        calls: The host's calls.
        steps: The steps of the trace.
        multiprocessors: Multiprocessors of its GPU; None: unknown.
    """
    times = _sums((kind, each.ended_us - each.begun_us) for kind, each in _kernels(work))
    if not times:
        return CallTimes({})
    computation, parts = _computed(work, multiprocessors)

    def not_replayed(*notes: str) -> CallTimes:
        sums = {CallTime.IN_JOB: times, CallTime.EXPOSED: _uncovered(work)}
        return CallTimes(sums | {CallTime.COMPUTATION: computation}, notes)

    if steps.begun_us >= steps.ended_us:
        begun_us = min((each.begun_us for each in calls), default=0.0)
        ended_us = max((each.ended_us for each in calls), default=0.0)
        steps = replace(steps, begun_us=begun_us, ended_us=ended_us)
    shortened = _shortened(steps, calls)
    timeline = timeline_of(work, calls, shortened.begun_us, shortened.ended_us)
    if timeline is None:
        note = f"the trace does not show what the host launched when: {_NOT_REPLAYED}"
        return not_replayed() if steps.step_us is None else not_replayed(note)
    whole_us = replayed_us(timeline)
    if whole_us > (1.0 + _MOST_LONGER) * timeline.recorded_us:
        note = (
            f"a replay of the trace takes {_ms(whole_us)} and the trace "
            f"{_ms(timeline.recorded_us)}: {_NOT_REPLAYED}"
        )
        return not_replayed(note)
    factor, notes = _host_factor(timeline, shortened, whole_us)
    of_steps = _sums((each.kind, each.time_us) for each in timeline.work if each.kind is not None)
    in_job = of_steps
    if shortened != steps:
        share = (shortened.ended_us - steps.begun_us) / (steps.ended_us - steps.begun_us)
        in_job = times | of_steps
        notes += (
            f"the trace is long: its first {share:.0%} was replayed, and stands for all of it",
        )
    exposed_us = exposed_times_us(timeline, factor)
    share = exposed_computation_share(timeline, factor)
    sums = {
        CallTime.IN_JOB: in_job,
        CallTime.EXPOSED: {
            kind: TimeSum(exposed_us[kind], own.number) for kind, own in of_steps.items()
        },
        CallTime.COMPUTATION: computation,
        CallTime.EXPOSED_COMPUTATION: {
            kind: TimeSum(share * own.sum_us, own.number) for kind, own in parts.items()
        },
    }
    return CallTimes(sums, notes)


def _shortened(steps: Steps, calls: Sequence[HostCall]) -> Steps:
    """Return the steps, or as many of the first as launch no more than is replayed."""
    begins_us = sorted(
        call.begun_us
        for call in calls
        if call.role not in WAITS and steps.begun_us <= call.begun_us < steps.ended_us
    )
    if len(begins_us) <= MOST_REPLAYED:
        return steps
    return steps.until(begins_us[MOST_REPLAYED])


def _kernels(work: Sequence[GpuWork]) -> Iterator[tuple[int, GpuWork]]:
    """Yield the kernels of collectives with the number of their kind."""
    for each in work:
        if each.kind is not None:
            yield each.kind, each


def _sums(times_us: Iterable[tuple[int, float]]) -> Sums:
    sums: defaultdict[int, TimeSum] = defaultdict(TimeSum)
    for kind, time_us in times_us:
        sums[kind].add(time_us)
    return dict(sums)


def _uncovered(work: Sequence[GpuWork]) -> Sums:
    """Return the time in which the GPU does nothing beside a call."""
    kernels = list(_kernels(work))
    others = [_span(each) for each in work if each.kind is None]
    found = uncovered_times_us([_span(each) for _, each in kernels], others)
    return _sums((kind, found[i]) for i, (kind, _) in enumerate(kernels))


def _computed(work: Sequence[GpuWork], multiprocessors: int | None) -> tuple[Sums, Sums]:
    """Return the computation beside the calls, and their parts of what several run beside."""
    kernels = list(_kernels(work))
    taken = [each.blocks / multiprocessors if multiprocessors else 0.0 for _, each in kernels]
    others = [_span(each) for each in work if each.kind is None and not each.is_copy]
    found = computed_times_us([_span(each) for _, each in kernels], taken, others)
    whole = _sums((kind, found[i][0]) for i, (kind, _) in enumerate(kernels))
    return whole, _sums((kind, found[i][1]) for i, (kind, _) in enumerate(kernels))


def _span(work: GpuWork) -> Span:
    return work.begun_us, work.ended_us


def _host_factor(
    timeline: Timeline, steps: Steps, whole_us: float
) -> tuple[float, tuple[str, ...]]:
    """Return what the host's time in the trace is scaled by, and notes on it."""
    if steps.step_us is None or steps.number is None:
        is_slow = replayed_us(timeline, _HALF) < (1.0 - _SLOWER_HOST) * whole_us
        return 1.0, (_UNKNOWN_HOST,) if is_slow else ()
    factor = host_factor_for(timeline, steps.number * steps.step_us)
    traced, least = _ms(whole_us / steps.number), _ms(replayed_us(timeline, 0.0) / steps.number)
    if factor == 1.0:
        note = f"a step takes {traced} in the trace, no longer than --step-time: taken as it is"
    elif factor == 0.0:
        note = (
            f"the GPU's work of a step takes {least} in the trace, longer than --step-time: "
            "the host's time is left out"
        )
    else:
        note = (
            f"a step takes {traced} in the trace and {_ms(steps.step_us)} without the profiler: "
            f"the host's time is scaled by {factor:.2f}"
        )
    return factor, (note,)


def _ms(time_us: float) -> str:
    """Return a time as `29.5 ms`."""
    return f"{time_us / _MS_US:.3g} ms"
