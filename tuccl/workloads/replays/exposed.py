"""Exposed time: by how much steps are shorter if their collectives take no time.

A training hides collectives behind computation, and where the host launches work later than the GPU
could begin it, a faster call only has the GPU wait longer. So exposed time is what a replay of the
steps loses with the collectives. It is an upper bound of what faster calls save.

Units: microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuccl.workloads.replays.replay import replayed_us
from tuccl.workloads.replays.timeline import Timeline


def exposed_times_us(timeline: Timeline, host_factor: float = 1.0) -> dict[int, float]:
    """Return the exposed time of each kind of collective call, all its calls together.

    What one kind saves depends on the others: calls side by side save nothing one by one. Kinds are
    taken away one after another, in both orders, and each gets the mean of what it saved: their sum
    is what all of them save (a sample of two orders of the Shapley value, Castro et al., 2009).

    Args:
        timeline: Recorded steps.
        host_factor: What the host's own time is multiplied by.
    """
    kinds = sorted({work.kind for work in timeline.work if work.kind is not None})
    found = dict.fromkeys(kinds, 0.0)
    for order in (kinds, kinds[::-1]):
        for kind, saved_us in zip(order, _savings_us(timeline, host_factor, order), strict=True):
            found[kind] += saved_us / 2
    return found


def _savings_us(timeline: Timeline, host_factor: float, order: Sequence[int]) -> list[float]:
    """Return by how much each kind shortens the steps, those before it taken away."""
    lengths_us = [
        replayed_us(timeline, host_factor, frozenset(order[:taken]))
        for taken in range(len(order) + 1)
    ]
    return [max(0.0, lengths_us[i] - lengths_us[i + 1]) for i in range(len(order))]
