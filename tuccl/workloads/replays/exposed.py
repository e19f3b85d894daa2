"""Exposed time: by how much steps are shorter if their collectives take no time.

A training hides collectives behind computation, and where the host launches work later than the GPU
could begin it, a faster call only has the GPU wait longer. So exposed time is what a replay of the
steps loses with the collectives. It is an upper bound of what faster calls save.

Units: microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tuccl.workloads.replays.replay import replayed_us
from tuccl.workloads.replays.timeline import Timeline

_LESS = 0.95
"""Share of its time that computation keeps in the replay that tells what it is worth."""
MOST_ALONE = 16
"""Kinds that are taken away one by one; each takes two replays, seconds in a long trace."""


def exposed_times_us(timeline: Timeline, host_factor: float = 1.0) -> dict[int, float]:
    """Return the exposed time of each kind of collective call, all its calls together.

    What one kind saves depends on the others: calls side by side save nothing one by one. Kinds are
    taken away one after another, in both orders, and each gets the mean of what it saved: their sum
    is what all of them save (a sample of two orders of the Shapley value, Castro et al., 2009).
    Beside the `MOST_ALONE` that take longest all others are taken away together, and divide what
    they save as their times.

    Args:
        timeline: Recorded steps.
        host_factor: What the host's own time is multiplied by.
    """
    times_us: defaultdict[int, float] = defaultdict(float)
    for work in timeline.work:
        if work.kind is not None:
            times_us[work.kind] += work.time_us
    longest = sorted(times_us, key=lambda kind: (-times_us[kind], kind))
    groups = sorted([kind] for kind in longest[:MOST_ALONE])
    groups += [longest[MOST_ALONE:]] if len(longest) > MOST_ALONE else []
    found = dict.fromkeys(sorted(times_us), 0.0)
    for order in (groups, groups[::-1]):
        for group, saved_us in zip(order, _savings_us(timeline, host_factor, order), strict=True):
            whole_us = sum(times_us[kind] for kind in group)
            for kind in group:
                share = times_us[kind] / whole_us if whole_us > 0.0 else 1.0 / len(group)
                found[kind] += share * saved_us / 2
    return found


def exposed_computation_share(timeline: Timeline, host_factor: float = 1.0) -> float:
    """Return by how much steps are shorter for each us that their computation takes less; 0 to 1.

    A call that takes fewer multiprocessors lets the computation beside it end sooner, which
    shortens a step whose GPU is busy, and not one that waits for its host or for collectives.

    Args:
        timeline: Recorded steps.
        host_factor: What the host's own time is multiplied by.
    """
    computing_us = sum(work.time_us for work in timeline.work if work.computes)
    if computing_us <= 0.0:
        return 0.0
    whole_us = replayed_us(timeline, host_factor)
    saved_us = whole_us - replayed_us(timeline, host_factor, computation_factor=_LESS)
    return min(1.0, max(0.0, saved_us / ((1.0 - _LESS) * computing_us)))


def _savings_us(
    timeline: Timeline, host_factor: float, order: Sequence[Sequence[int]]
) -> list[float]:
    """Return by how much each group of kinds shortens the steps, those before it taken away."""
    without: set[int] = set()
    lengths_us = [replayed_us(timeline, host_factor)]
    for group in order:
        without.update(group)
        lengths_us.append(replayed_us(timeline, host_factor, without))
    return [max(0.0, lengths_us[i] - lengths_us[i + 1]) for i in range(len(order))]
