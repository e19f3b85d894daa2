"""`replayed_us`: how long recorded steps take with a faster host or GPU, or without collectives.

A replay goes through a timeline as host and GPU did: each piece of work begins when its launch and
all that it waits for are done, the host goes on when what it waits for is done. Work takes the
recorded time. The model is that of dPRO (Hu et al., MLSys 2022) and Daydream (Zhu et al., USENIX
ATC 2020), with the dependencies of `tuccl.workloads.replays.inference`.

Units: microseconds.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tuccl.workloads.replays.timeline import Launch, Timeline, TimelineWork

_HALVINGS = 16
_MOST_PASSES = 8
_ALIKE = 1e-4
"""Share by which two passes may differ that count as alike."""
_STEP_NOISE = 0.02
"""Share by which the time of a job's steps may be off."""
NO_KINDS: frozenset[int] = frozenset()


def replayed_us(
    timeline: Timeline,
    host_factor: float = 1.0,
    without: AbstractSet[int] = NO_KINDS,
    computation_factor: float = 1.0,
) -> float:
    """Return the time that the steps of a timeline take when they follow their like.

    A recording begins with work of earlier steps under way and ends with its own. So the steps are
    replayed again and again, until a pass takes as long as the one before it.

    Args:
        timeline: Recorded steps.
        host_factor: What the host's own time, its waits left out, is multiplied by.
        without: Kinds of collectives that take no time.
        computation_factor: What the time of computation is multiplied by.
    """
    replay = _Replay(timeline, host_factor, without, computation_factor)
    replay.pass_us()
    length_us = replay.pass_us()
    for _ in range(_MOST_PASSES - 2):
        before_us, length_us = length_us, replay.pass_us()
        if abs(length_us - before_us) <= _ALIKE * length_us:
            break
    return length_us


class _Replay:
    """Host and GPU after some passes over a timeline."""

    def __init__(
        self,
        timeline: Timeline,
        host_factor: float,
        without: AbstractSet[int],
        computation_factor: float,
    ) -> None:
        self._timeline = timeline
        self._host_factor = host_factor
        self._times_us = [_time_us(work, without, computation_factor) for work in timeline.work]
        self._ends_us = [0.0] * len(timeline.work)
        self._host_us = self._gpu_us = 0.0

    def pass_us(self) -> float:
        """Go through the timeline once more; return the time from the end of the pass before."""
        began_us = max(self._host_us, self._gpu_us)
        before_us, self._ends_us = self._ends_us, [0.0] * len(self._ends_us)
        host_us, recorded_us, factor = self._host_us, 0.0, self._host_factor
        for call in self._timeline.calls:
            host_us += factor * max(0.0, call.at_us - recorded_us)
            recorded_us = max(recorded_us, call.at_us)
            if isinstance(call, Launch):
                self._launch(call, host_us, before_us)
                continue
            done_us = max(
                max((self._ends_us[number] for number in call.work), default=0.0),
                max((before_us[number] for number in call.work_before), default=0.0),
            )
            host_us = max(host_us, done_us) + call.extra_us
            recorded_us = max(recorded_us, call.ended_us)
        self._host_us = host_us + factor * max(0.0, self._timeline.host_us - recorded_us)
        return max(self._host_us, self._gpu_us) - began_us

    def _launch(self, launch: Launch, host_us: float, before_us: list[float]) -> None:
        ends_us, times_us = self._ends_us, self._times_us
        for number in range(launch.begin, launch.end):
            work = self._timeline.work[number]
            done_us = 0.0
            for before in work.after:
                done_us = max(done_us, ends_us[before])
            for before in work.after_before:
                done_us = max(done_us, before_us[before])
            begun_us = max(host_us + work.launch_lag_us, done_us + work.lag_us)
            ends_us[number] = begun_us + times_us[number]
            self._gpu_us = max(self._gpu_us, ends_us[number])


def _time_us(work: TimelineWork, without: AbstractSet[int], computation_factor: float) -> float:
    if work.computes:
        return computation_factor * work.time_us
    return 0.0 if work.kind in without else work.time_us


def host_factor_for(timeline: Timeline, length_us: float) -> float:
    """Return the largest host factor, at most 1, by which a timeline takes as long as the job.

    A profiler slows the host: with this factor a replay is one without the profiler. 0 where the
    work on the GPU alone takes longer than that, 1 where the trace takes no longer; so where the
    host does not matter, it counts as slow as it was.

    Args:
        timeline: Recorded steps.
        length_us: Time that the job takes for as many steps.
    """
    length_us *= 1.0 + _STEP_NOISE
    if replayed_us(timeline) <= length_us:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if replayed_us(timeline, middle) <= length_us:
            low = middle
        else:
            high = middle
    return low
