"""Guidance: the sizes for which a sketch is worth trying, by operation.

Between nodes or over NVLink relays a transfer pays several alphas and little per byte; straight
over PCIe, or from every GPU to every other through the NICs, it pays one alpha and more per byte.
So a candidate is of use on one side of a size, where its bytes overtake the alphas it saves. That
size follows from the two figures of each candidate that are known before any search: no schedule on
it is faster than `latency_us`, nor than its bytes at `bandwidth_gb_per_s`, and a good one takes
about their sum.

A candidate is left out where even its bound is above what another one takes. Where that other one
has fewer connections, a bound that is at most half a percent below it does not count: what has
fewer connections is searched sooner and, as TuCCL found (section III-B), better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf

_WORTH_IT = 0.995
_SAME = 1e-6
"""Relative; bandwidths are solutions of linear programs."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes from `min_bytes` to `max_bytes`, both inclusive; none when they are crossed."""

    operation: str
    min_bytes: int
    max_bytes: int | None
    """None: no upper limit."""
    reason: str

    def holds(self, size_bytes: int) -> bool:
        """Whether a size is within."""
        return self.min_bytes <= size_bytes and (
            self.max_bytes is None or size_bytes <= self.max_bytes
        )


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """What is known of a candidate before any search."""

    name: str
    connections: int
    latency_us: float
    """No schedule on it takes less, whatever the size."""
    bandwidth_gb_per_s: float
    """No schedule on it exceeds it: size over time."""


def size_ranges(
    operation: str, candidates: Sequence[CandidateFigures], phases: int = 1
) -> tuple[SizeRange, ...]:
    """For which sizes each candidate is worth trying; the first always is.

    Args:
        operation: What the figures are of.
        candidates: The default first.
        phases: How often a good schedule pays the latency one after another.
    """
    return tuple(
        _size_range(operation, one, [other for other in candidates if other is not one], phases)
        if number
        else SizeRange(operation, 0, None, "the default, tried at every size")
        for number, one in enumerate(candidates)
    )


def _size_range(
    operation: str, one: CandidateFigures, others: Sequence[CandidateFigures], phases: int
) -> SizeRange:
    lows = [(_from_bytes(one, other, phases), other) for other in others]
    highs = [(_to_bytes(one, other, phases), other) for other in others]
    low, low_by = max(lows, key=lambda found: found[0])
    high, high_by = min(highs, key=lambda found: found[0])
    reasons = []
    if low > 0:
        reasons.append(
            f"below {low:,.0f} bytes its latency of {one.latency_us:.2f} us is more than "
            f"{low_by.name} takes in all"
        )
    if high < inf:
        reasons.append(
            f"above {high:,.0f} bytes, which move at {one.bandwidth_gb_per_s:.1f} GB/s, what it "
            f"can save of the {phases * high_by.latency_us:.2f} us of latency of {high_by.name} "
            f"({high_by.bandwidth_gb_per_s:.1f} GB/s) is too little"
        )
    if not reasons:
        reasons.append("no other candidate is surely as good at any size")
    why = ("for no size: " if low > high else "") + "; ".join(reasons)
    return SizeRange(operation, ceil(low), None if high == inf else floor(high), why)


def _least_gain(one: CandidateFigures, other: CandidateFigures) -> float:
    return _WORTH_IT if other.connections < one.connections else 1.0


def _from_bytes(one: CandidateFigures, other: CandidateFigures, phases: int) -> float:
    """From where the latency of one is less than what the other takes."""
    most_us = one.latency_us / _least_gain(one, other) - phases * other.latency_us
    return max(0.0, most_us * other.bandwidth_gb_per_s * 1e3)


def _to_bytes(one: CandidateFigures, other: CandidateFigures, phases: int) -> float:
    """To where the bytes of one take less time than the other takes."""
    gain = _least_gain(one, other)
    slower_us_per_byte = 1e-3 * (1 / one.bandwidth_gb_per_s - gain / other.bandwidth_gb_per_s)
    if slower_us_per_byte <= _SAME * 1e-3 / one.bandwidth_gb_per_s:
        return inf
    return gain * phases * other.latency_us / slower_us_per_byte
