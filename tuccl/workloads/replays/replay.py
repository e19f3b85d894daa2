"""`replayed_us`: how long recorded steps take with a faster host, or without some collectives.

A replay goes through a timeline as host and GPU did: each piece of work begins when its launch and
all that it waits for are done, the host goes on when what it waits for is done. Work takes the
recorded time. The model is that of dPRO (Hu et al., MLSys 2022) and Daydream (Zhu et al., USENIX
ATC 2020), with the dependencies of `tuccl.workloads.replays.timeline`.

Units: microseconds.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tuccl.workloads.replays.timeline import Launch, Timeline

_HALVINGS = 30
NO_KINDS: frozenset[int] = frozenset()


def replayed_us(
    timeline: Timeline, host_factor: float = 1.0, without: AbstractSet[int] = NO_KINDS
) -> float:
    """Return the time that a timeline takes.

    Args:
        timeline: Recorded steps.
        host_factor: What the host's own time, its waits left out, is multiplied by.
        without: Kinds of collectives that take no time.
    """
    ends_us = [0.0] * len(timeline.work)
    host_us = recorded_us = gpu_us = 0.0
    for call in timeline.calls:
        host_us += host_factor * max(0.0, call.at_us - recorded_us)
        recorded_us = max(recorded_us, call.at_us)
        if isinstance(call, Launch):
            for number in range(call.begin, call.end):
                work = timeline.work[number]
                ready_us = host_us
                for before in work.after:
                    ready_us = max(ready_us, ends_us[before])
                own_us = 0.0 if work.kind in without else work.time_us
                ends_us[number] = ready_us + work.lag_us + own_us
                gpu_us = max(gpu_us, ends_us[number])
        else:
            done_us = gpu_us if call.work is None else ends_us[call.work]
            host_us = max(host_us, done_us) + call.extra_us
            recorded_us = max(recorded_us, call.ended_us)
    host_us += host_factor * max(0.0, timeline.host_us - recorded_us)
    return max(host_us, gpu_us)


def host_factor_for(timeline: Timeline, length_us: float) -> float:
    """Return the host factor, at most 1, by which a timeline takes as long as the job's own steps.

    A profiler slows the host: with this factor a replay is one without the profiler. 0 where the
    work on the GPU alone takes longer than that, 1 where the trace takes no longer.
    """
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
