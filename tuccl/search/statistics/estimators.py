"""Estimators of location and of spread.

Times are positive and their noise multiplies, so means, deviations and differences are those of
logarithms; a difference of logarithms is a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

MEDIAN_TO_MEAN_ERROR = math.sqrt(math.pi / 2.0)
"""Standard error of a median over that of the mean of as many normal values (Kendall and Stuart,
The Advanced Theory of Statistics 1, 10.10)."""
_STALL = 1.5
"""Multiple of the median from which a sample counts as a stall."""
_RECURRING, _FEWEST_STALLS = 0.1, 2
"""Share and number of samples from which stalls count as recurring: 4 of 15 of a call over TCP."""
_MEAN_DEVIATION_TO_SIGMA = math.sqrt(math.pi / 2.0)
"""Sigma of a normal distribution over its mean absolute deviation."""


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half (Tukey's midmean).

    It ignores outliers, as the median does, but does not jump between two modes. For fewer than
    four values it is the mean.
    """
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return fmean(ordered[quarter : len(ordered) - quarter])


def stalls(values: Sequence[float]) -> int:
    """Return how many values are stalls that recur; 0 where they may be accidents."""
    limit = _STALL * median(values)
    found = sum(value > limit for value in values)
    return found if found >= max(_FEWEST_STALLS, _RECURRING * len(values)) else 0


def time_in_a_job(values: Sequence[float], *, recur: bool) -> float:
    """Mean time of a call, as a job that waits for it sees it.

    Args:
        values: Times of the call in one start.
        recur: Whether the call stalls now and then: its stalls count at their rate, by the plain
            mean. Else the middle half of the values counts, which ignores accidents.
    """
    return fmean(values) if recur else interquartile_mean(values)


def geometric_mean(logs: Sequence[float]) -> float:
    """Geometric mean of the values that have these logarithms."""
    return math.exp(fmean(logs))


def paired_ratios(times: Sequence[float], references: Sequence[float]) -> list[float]:
    """Reference time over time, turn by turn; above 1 is faster than the reference."""
    return [slow / fast for fast, slow in zip(times, references, strict=True)]


def ratios_of_turns(times: Sequence[float], references: Sequence[float]) -> list[float]:
    """Ratios of the turns that were timed, where the reference may have had more turns."""
    return paired_ratios(times, references[: len(times)])


def log_gains(logs: Sequence[float], references: Sequence[float]) -> list[float]:
    """Logarithm of the same ratio, start by start; above 0 is faster than the reference."""
    return [slow - fast for fast, slow in zip(logs, references, strict=True)]


def log_deviation(values: Sequence[float]) -> float:
    """Standard deviation of the logarithms; 0 for a single value."""
    return stdev(map(math.log, values)) if len(values) > 1 else 0.0


def quartile_spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, over the median."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / (2.0 * median(ordered))


def sum_of_deviations(values: Sequence[float]) -> float:
    """Sum of the absolute deviations from the median, over the median; each counts up to 1.

    A launch that took more than twice the median was disturbed, and by how much says nothing about
    the undisturbed ones (winsorizing; Tukey, The future of data analysis, 1962).
    """
    middle = median(values)
    return sum(min(1.0, abs(value / middle - 1.0)) for value in values)


def sigma_by_mean_deviation(mean_deviation: float) -> float:
    """Standard deviation of normal values, estimated from their mean absolute deviation."""
    return mean_deviation * _MEAN_DEVIATION_TO_SIGMA


def error_of_median(sigma: float, count: int) -> float:
    """Standard error of a median of `count` values; that of one or two values is their mean."""
    return sigma * (MEDIAN_TO_MEAN_ERROR if count > 2 else 1.0) / math.sqrt(count)


def error_of_weighted_mean(errors: Sequence[float], weights: Sequence[float]) -> float:
    """Standard error of a weighted mean of independent figures; 0 without any."""
    squares = sum((weight * error) ** 2 for error, weight in zip(errors, weights, strict=True))
    return math.sqrt(squares) / sum(weights) if errors else 0.0
