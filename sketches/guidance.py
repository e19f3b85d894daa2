"""Guidance: the sizes at which a sketch is worth trying, by operation.

A transfer over relays takes several alphas and little time per byte; a direct transfer over PCIe,
or from every GPU to every other through the NICs, takes one alpha and more time per byte. So a
candidate is useful on one side of the size at which the time of its bytes exceeds the alphas that
it saves. That size follows from two figures of each candidate that are known before any search: no
schedule on it is faster than `latency_us`, nor than its bytes at `bandwidth_gb_per_s`, and a good
one takes about their sum.

A candidate is left out at sizes where even its bound exceeds the time of a rival. If the rival has
fewer connections, the bound must be half a percent below the rival's time: a sketch with fewer
connections is searched faster and, as TuCCL found (section III-B), better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Annotated

from annotated_types import Ge

_LEAST_GAIN = 0.995
_SAME = 1e-6
"""Relative difference below which bandwidths, solutions of linear programs, are equal."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes from `min_bytes` to `max_bytes`, both inclusive; empty if `max_bytes` is smaller."""

    operation: str
    min_bytes: Annotated[int, Ge(0)]
    max_bytes: Annotated[int, Ge(0)] | None
    """Largest size; None: no limit."""
    reason: str

    def holds(self, size_bytes: int) -> bool:
        """Return whether a size is in the range."""
        return self.min_bytes <= size_bytes and (
            self.max_bytes is None or size_bytes <= self.max_bytes
        )


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """A candidate's bounds, known before any search."""

    name: str
    connections: int
    latency_us: float
    """Lower bound on the time of its schedules at any size."""
    bandwidth_gb_per_s: float
    """Upper bound on the bandwidth (size over time) of its schedules."""


def size_ranges(
    operation: str, candidates: Sequence[CandidateFigures], phases: int = 1
) -> tuple[SizeRange, ...]:
    """Return the sizes at which each candidate is worth trying; the first always is.

    The default candidate is the first; `phases` is the number of consecutive latencies of a good
    schedule.
    """
    return tuple(
        _size_range(operation, candidate, [c for c in candidates if c is not candidate], phases)
        if number
        else SizeRange(operation, 0, None, "the default, tried at every size")
        for number, candidate in enumerate(candidates)
    )


def _size_range(
    operation: str, candidate: CandidateFigures, rivals: Sequence[CandidateFigures], phases: int
) -> SizeRange:
    lows = [(_from_bytes(candidate, rival, phases), rival) for rival in rivals]
    highs = [(_to_bytes(candidate, rival, phases), rival) for rival in rivals]
    low, low_by = max(lows, key=lambda found: found[0])
    high, high_by = min(highs, key=lambda found: found[0])
    reasons = []
    if low > 0:
        reasons.append(
            f"below {low:,.0f} bytes its latency of {candidate.latency_us:.2f} us is more than "
            f"{low_by.name} takes in all"
        )
    if high < inf:
        reasons.append(
            f"above {high:,.0f} bytes, which move at {candidate.bandwidth_gb_per_s:.1f} GB/s, what "
            f"it can save of the {phases * high_by.latency_us:.2f} us of latency of {high_by.name} "
            f"({high_by.bandwidth_gb_per_s:.1f} GB/s) is too little"
        )
    if not reasons:
        reasons.append("no other candidate is surely as good at any size")
    why = ("for no size: " if low > high else "") + "; ".join(reasons)
    return SizeRange(operation, ceil(low), None if high == inf else floor(high), why)


def _least_gain(candidate: CandidateFigures, rival: CandidateFigures) -> float:
    return _LEAST_GAIN if rival.connections < candidate.connections else 1.0


def _from_bytes(candidate: CandidateFigures, rival: CandidateFigures, phases: int) -> float:
    """Return the size from which the candidate's latency is below the rival's time."""
    most_us = candidate.latency_us / _least_gain(candidate, rival) - phases * rival.latency_us
    return max(0.0, most_us * rival.bandwidth_gb_per_s * 1e3)


def _to_bytes(candidate: CandidateFigures, rival: CandidateFigures, phases: int) -> float:
    """Return the size up to which the candidate's bytes take less than the rival's time."""
    gain = _least_gain(candidate, rival)
    slower_us_per_byte = 1e-3 * (1 / candidate.bandwidth_gb_per_s - gain / rival.bandwidth_gb_per_s)
    if slower_us_per_byte <= _SAME * 1e-3 / candidate.bandwidth_gb_per_s:
        return inf
    return gain * phases * rival.latency_us / slower_us_per_byte
