"""Confidence intervals: pairs of one-sided bounds with the same error probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from statistics import fmean, median, stdev

from tuccl.search.statistics.distributions import student_quantile
from tuccl.search.statistics.moderation import MeanError


@dataclass(frozen=True, slots=True)
class Interval:
    """Lower and upper bound of a ratio."""

    low: float
    high: float


START_ERROR = 0.015
"""Error of a ratio of two starts of the workers where launches are quiet: twice the deviation from
start to start on four H200, over all small messages."""
_LOOK_ERRORS = 3.0
"""Standard errors allowed for one start's ratio: 0.13 % of a normal distribution lies beyond,
because dozens of keys are compared in one start."""
UNKNOWN = Interval(0.0, math.inf)
"""Interval of a ratio before any sample."""


def interval_of_means(
    times: Sequence[float], references: Sequence[float], error: float
) -> tuple[float, Interval]:
    """Ratio of the mean of some reference times to that of others, with bounds.

    By Student's distribution of the logarithm of each mean, whose relative errors add as squares
    (JCGM 100:2008, 5.1.2).

    Args:
        times: At least two.
        references: At least two.
        error: Largest probability that a bound is on the wrong side of the ratio.
    """
    ratio = fmean(references) / fmean(times)
    errors = (stdev(own) / fmean(own) / math.sqrt(len(own)) for own in (times, references))
    degrees = min(len(times), len(references)) - 1
    width = student_quantile(1.0 - error, degrees) * math.hypot(*errors)
    return ratio, Interval(ratio * math.exp(-width), ratio * math.exp(width))


def pairs_interval(ratios: Sequence[float], error: float) -> tuple[float, Interval]:
    """Median of paired ratios by Hodges and Lehmann, with bounds.

    The median of the means of all pairs of logarithms (Annals of Mathematical Statistics 34, 1963,
    p. 598), and order statistics of these means by the distribution of Wilcoxon's signed ranks
    (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, 3.3). The
    logarithms have to be distributed symmetrically, as those of two calls taken in turn are; then
    fewer are needed than for bounds of the median. With too few for the error there are no bounds.

    Args:
        ratios: Independent ratios, at least one.
        error: Largest probability that a bound is on the wrong side of the median.
    """
    logs = sorted(map(math.log, ratios))
    means = sorted((a + b) / 2.0 for a, b in combinations_with_replacement(logs, 2))
    below, rank = 0, -1
    for count in _signed_rank_counts(len(logs)):
        below += count
        if below > error * 2 ** len(logs):
            break
        rank += 1
    if rank < 0:
        return math.exp(median(means)), UNKNOWN
    low, high = means[rank], means[len(means) - 1 - rank]
    return math.exp(median(means)), Interval(math.exp(low), math.exp(high))


@lru_cache(maxsize=64)
def _signed_rank_counts(count: int) -> tuple[int, ...]:
    """Number of sets of the ranks 1 to `count` with each sum, which are equally likely."""
    counts = [1]
    for rank in range(1, count + 1):
        longer = [*counts, *[0] * rank]
        for total, sets in enumerate(counts):
            longer[total + rank] += sets
        counts = longer
    return tuple(counts)


def student_interval(logs: Sequence[float], mean: MeanError, error: float) -> Interval:
    """Bounds of a geometric mean, by Student's distribution of the mean logarithm.

    Student (Biometrika 6, 1908, p. 1); with a moderated variance: Smyth 2004, section 4
    (`tuccl.search.statistics.moderation`).
    """
    width = student_quantile(1.0 - error, mean.degrees) * mean.error
    middle = fmean(logs)
    return Interval(math.exp(middle - width), math.exp(middle + width))


def widened(ratio: float, known: Interval, between: MeanError, error: float) -> Interval:
    """Bounds of one start's ratio, widened by the deviation from start to start.

    The two errors are independent, so their widths add as squares (JCGM 100:2008, Guide to the
    expression of uncertainty in measurement, 5.1.2 and G.4).

    Args:
        ratio: Ratio of one start, within `known`.
        known: Interval by that start's samples alone, whose bounds have the same error.
        between: Standard error of the ratio's logarithm from start to start.
        error: Error probability of each bound.
    """
    if between.error <= 0.0 or known.low <= 0.0:
        return known
    more = student_quantile(1.0 - error, between.degrees) * between.error
    return Interval(
        ratio * math.exp(-math.hypot(math.log(ratio / known.low), more)),
        ratio * math.exp(math.hypot(math.log(known.high / ratio), more)),
    )


def values_needed(ratio: float, known: Interval, values: int) -> int | None:
    """Number of values with which the lower bound of a ratio would be 1, if the ratio stays.

    The distance of the bound falls with the root of their number. The quantile falls, too, so that
    fewer may do.

    Args:
        ratio: The ratio of so many values.
        known: Its bounds.
        values: Number of values.

    Returns:
        The number; None: the ratio is not above 1, or nothing is known of the bound.
    """
    if ratio <= 1.0 or known.low <= 0.0:
        return None
    return math.ceil(values * (math.log(ratio / known.low) / math.log(ratio)) ** 2)


def interval_of_two_starts(ratio: float, error: float, spread: float) -> Interval:
    """Bounds of a ratio of two times that come from different starts.

    How far starts differ is unknown here. START_ERROR is assumed, or the samples' own deviation
    where that is larger, as over TCP. It is a bound and no standard error, so it adds linearly.

    Args:
        ratio: Ratio of the two estimates.
        error: Standard error of its logarithm by the samples.
        spread: Standard deviation of a sample's logarithm.
    """
    within = math.exp(_LOOK_ERRORS * error + max(START_ERROR, spread))
    return Interval(ratio / within, ratio * within)
