"""Bounds of a sum of independent times, each known with bounds of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from tuccl.search.statistics.intervals import Interval


def log_widths(ratio: float, known: Interval, confidence: float, wanted: float) -> Interval:
    """Distances from a ratio's logarithm down to its lower bound, and up to its upper one.

    Bounds of another confidence are converted as for a normal distribution.

    Args:
        ratio: The ratio, within `known`.
        known: Its bounds.
        confidence: Confidence with which each of them holds by itself.
        wanted: Confidence of the bounds that the distances lead to.
    """
    normal = NormalDist()
    scale = normal.inv_cdf(wanted) / normal.inv_cdf(confidence)
    below = math.log(ratio / known.low) if known.low > 0.0 else math.inf
    above = math.log(known.high / ratio) if known.high < math.inf else math.inf
    return Interval(scale * max(0.0, below), scale * max(0.0, above))


def together(widths: Iterable[Interval]) -> Interval:
    """Distances of a product of independent ratios from those of its factors, which add as squares.

    JCGM 100:2008, Guide to the expression of uncertainty in measurement, 5.1.2.
    """
    known = list(widths)
    return Interval(math.hypot(*(w.low for w in known)), math.hypot(*(w.high for w in known)))


def interval_of_sum(times: Iterable[tuple[float, Interval]]) -> Interval:
    """Bounds of a sum of independent times, whose own distances add as squares.

    Args:
        times: Each time with its bounds.
    """
    known = list(times)
    whole = sum(time for time, _ in known)
    below = math.hypot(*(time - bounds.low for time, bounds in known))
    above = math.hypot(*(bounds.high - time for time, bounds in known))
    return Interval(whole - below, whole + above)
