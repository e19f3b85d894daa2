"""Confidence intervals, all of them one-sided bounds with the same error on each side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean

from tuccl.statistics.distributions import student_quantile
from tuccl.statistics.pooling import MeanError


@dataclass(frozen=True, slots=True)
class Interval:
    """A lower bound and an upper one."""

    low: float
    high: float


START_ERROR = 0.015
"""What a ratio of two starts of the workers may be off by where launches are quiet: on four H200
twice the deviation seen from start to start, all small messages together."""
_LOOK_ERRORS = 3.0
"""Standard errors of samples that one start's ratio may be off by: 0.13 % of a normal
distribution, because a visit looks at dozens of keys."""
UNKNOWN = Interval(0.0, math.inf)
"""Of a ratio of which nothing is known."""


def median_interval(values: Sequence[float], error: float) -> Interval:
    """Bounds of a population's median, whatever its distribution.

    Order statistics (David and Nagaraja, Order Statistics, 3rd edition, 7.1): the k-th smallest of
    n values exceeds the median with the probability that fewer than k of n fair coins fall below
    it. With n too small for the error the smallest and the largest value are returned.

    Args:
        values: Independent, one at least.
        error: Most probability with which each bound may be on the wrong side.
    """
    ordered = sorted(values)
    count = len(ordered)
    below, rank = 0.0, 0
    for k in range(count):
        below += comb(count, k) / 2**count
        if below > error:
            break
        rank = k
    return Interval(ordered[rank], ordered[count - 1 - rank])


def student_interval(logs: Sequence[float], mean: MeanError, error: float) -> Interval:
    """Bounds of a geometric mean, by Student's distribution of the mean logarithm.

    Student (Biometrika 6, 1908, p. 1), with a pooled variance: Snedecor and Cochran, Statistical
    Methods, 8th edition, 12.2.
    """
    width = student_quantile(1.0 - error, mean.degrees) * mean.error
    middle = fmean(logs)
    return Interval(math.exp(middle - width), math.exp(middle + width))


def widened(ratio: float, known: Interval, between: MeanError, error: float) -> Interval:
    """Bounds that also allow for what another start would have shown.

    The two errors are independent, so that their widths add as squares (JCGM 100:2008, Guide to the
    expression of uncertainty in measurement, 5.1.2 and G.4).

    Args:
        ratio: Shown by one start, within `known`, whose bounds have the same error.
        known: By the samples of that start.
        between: Of the ratio's logarithm, from start to start.
        error: Of each bound.
    """
    if between.error <= 0.0 or known.low <= 0.0:
        return known
    more = student_quantile(1.0 - error, between.degrees) * between.error
    return Interval(
        ratio * math.exp(-math.hypot(math.log(ratio / known.low), more)),
        ratio * math.exp(math.hypot(math.log(known.high / ratio), more)),
    )


def interval_of_two_starts(ratio: float, error: float, spread: float) -> Interval:
    """Bounds of a ratio whose two times are of one start each.

    How far starts differ is unknown then: by START_ERROR, or by as much as samples do, which over
    TCP is about the same. A bound that is no standard error adds to the width as it is.

    Args:
        ratio: As it was seen.
        error: Standard error of its logarithm, by the samples.
        spread: Standard deviation of a sample's logarithm.
    """
    within = math.exp(_LOOK_ERRORS * error + max(START_ERROR, spread))
    return Interval(ratio / within, ratio * within)
