"""Racks learned from latencies: a message to another rack passes two or more further switches.

Latencies of pairs of hosts are split at a gap. Hosts that are joined by pairs below it are a rack.
A gap counts only if all of this holds, else nothing is learned:

- It is at least a fifth of the latency below it, and twice as wide as the latencies on either side
  are apart (without the outer tenths). Noise has no such gap among its middle values.
- Two racks or more have two hosts or more: a host that is far from all others is a late host.
- Nearly all pairs inside racks are near. Pairs between racks are far, as racks are made of the
  near ones. Noise puts far pairs everywhere, so near pairs join all hosts.

A cluster of three levels (racks, rows) has two gaps, of which neither may be wide enough.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LEAST_GAP = 0.2
"""Least gap over the median latency below it."""
_GAP_TO_RANGE = 2.0
_OUTER = 10
"""One in so many values on either end does not count for the range, and at least one of ..."""
_ENOUGH = 6
"""... so many values."""
_ODD_INSIDE = 0.1
"""Largest share of far pairs among those inside racks."""
_MOST_GAPS = 8
"""Gaps that are tried, the widest first."""

HostPair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LearnedRacks:
    """Racks, and the latencies inside and between them."""

    rack_of_host: Mapping[int, int]
    """Number of the rack by host, in the order of their first hosts."""
    near_us: float
    """Median latency of the pairs below the gap."""
    far_us: float
    """Median latency of the pairs above the gap."""

    @property
    def racks(self) -> list[list[int]]:
        """The hosts of each rack."""
        found: dict[int, list[int]] = {}
        for host, rack in sorted(self.rack_of_host.items()):
            found.setdefault(rack, []).append(host)
        return [found[rack] for rack in sorted(found)]

    def splits(self, before: LearnedRacks) -> bool:
        """Whether hosts that were in one rack before are in several."""
        return any(
            len({self.rack_of_host.get(host) for host in hosts}) > 1 for hosts in before.racks
        )


def learn_racks(latency_us: Mapping[HostPair, float]) -> LearnedRacks | None:
    """Return the racks that latencies show, if they show any.

    `latency_us` has the least latency of each measured pair of hosts, in one direction or both.
    """
    pairs: dict[HostPair, float] = {}
    for (a, b), latency in latency_us.items():
        ends = (min(a, b), max(a, b))
        pairs[ends] = min(latency, pairs.get(ends, latency))
    values = sorted(pairs.values())
    splits = sorted(
        range(1, len(values)), key=lambda at: (values[at - 1] - values[at]) / values[at - 1]
    )
    for at in splits[:_MOST_GAPS]:
        near, far = values[:at], values[at:]
        gap = far[0] - near[-1]
        least = _LEAST_GAP * statistics.median(near)
        if gap < max(least, _GAP_TO_RANGE * max(_range(near), _range(far))):
            continue
        racks = _joined(pairs, near[-1])
        if _is_plausible(pairs, racks, near[-1]):
            return LearnedRacks(racks, statistics.median(near), statistics.median(far))
    return None


def _range(values: Sequence[float]) -> float:
    outer = max(len(values) // _OUTER, len(values) >= _ENOUGH)
    return values[len(values) - 1 - outer] - values[outer]


def _joined(pairs: Mapping[HostPair, float], most_us: float) -> dict[int, int]:
    """Return the rack of each host: hosts joined by near pairs, numbered by their first hosts."""
    neighbours: dict[int, list[int]] = {}
    for (a, b), latency in pairs.items():
        for host, peer in ((a, b), (b, a)):
            neighbours.setdefault(host, []).extend([peer] if latency <= most_us else [])
    rack_of: dict[int, int] = {}
    for first in sorted(neighbours):
        if first in rack_of:
            continue
        number = len(set(rack_of.values()))
        waiting = [first]
        while waiting:
            host = waiting.pop()
            if host not in rack_of:
                rack_of[host] = number
                waiting += neighbours[host]
    return rack_of


def _is_plausible(
    pairs: Mapping[HostPair, float], rack_of: Mapping[int, int], most_us: float
) -> bool:
    sizes: dict[int, int] = {}
    for rack in rack_of.values():
        sizes[rack] = sizes.get(rack, 0) + 1
    inside = [latency for (a, b), latency in pairs.items() if rack_of[a] == rack_of[b]]
    odd = sum(latency > most_us for latency in inside)
    return sum(size > 1 for size in sizes.values()) > 1 and odd <= _ODD_INSIDE * len(inside)
