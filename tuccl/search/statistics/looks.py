"""Error levels for several comparisons at once and for repeated looks at growing data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

_POINTS = 150
_REACH = 8.0
"""Standard deviations below 0 beyond which nothing lies."""


def bonferroni(error: float, comparisons: int) -> float:
    """Error level of each comparison that keeps the error of all of them together at `error`."""
    return error / comparisons


def false_discovery_level(error: float, comparisons: int, proved: Callable[[float], int]) -> float:
    """Error level of each comparison that keeps the share of false discoveries at `error`.

    The rule of Benjamini and Hochberg (Journal of the Royal Statistical Society B 57, 1995, p.
    289): of m comparisons r are proved at r / m of the error. Confidence bounds of that error are
    right for what was selected by them (Benjamini and Yekutieli, Journal of the American
    Statistical Association 100, 2005, p. 71).

    Args:
        error: Mean share of discoveries that may be false.
        comparisons: Number of comparisons, at least 1.
        proved: Number of comparisons proved at a given level; it falls with the level.
    """
    allowed = comparisons
    while allowed > 1 and (found := proved(error * allowed / comparisons)) < allowed:
        allowed = max(1, found)
    return error * allowed / comparisons


@dataclass(frozen=True, slots=True)
class Looks:
    """Repeated one-sided tests of data that grow.

    Successive looks are correlated, so their levels may add up to more than the total error. The
    error spent by each look follows the power family of Kim and DeMets (Biometrika 74, 1987, p.
    149) in the scheme of Lan and DeMets (Biometrika 70, 1983, p. 659). Each level follows from
    those before by the recursion of Armitage, McPherson and Rowe (Journal of the Royal Statistical
    Society A 132, 1969, p. 235) for normal values of known variance; the levels serve Student's
    distribution too (Jennison and Turnbull, Group Sequential Methods, 2000, 3.8). Stopping early
    for lack of promise only makes errors rarer.
    """

    planned: tuple[int, ...]
    """Number of values at each look."""
    power: float
    """Exponent of the spending function. 1 spends the error evenly, which ends most tests early; a
    larger one keeps it for the late looks, which have most data."""

    def error_at(self, count: int, error: float, *, last: bool) -> float:
        """Error level of the look at `count` values.

        Args:
            count: Values of a planned look, or where the data end early, as by a budget.
            error: Error probability of a one-sided bound over all looks.
            last: Whether no look follows, so that all remaining error may be spent.
        """
        counts = (*(look for look in self.planned if look < count), count)
        shares = [min(1.0, (look / self.planned[-1]) ** self.power) for look in counts]
        if last:
            shares[-1] = 1.0
        return _levels(error, counts, tuple(shares))[-1]


@lru_cache(maxsize=256)
def _levels(error: float, counts: tuple[int, ...], shares: tuple[float, ...]) -> tuple[float, ...]:
    """Error level of each look; `shares` is the part of `error` spent up to and with it."""
    sums, mass = np.zeros(1), np.ones(1)
    levels = []
    spent, before = 0.0, 0
    for count, share in zip(counts, shares, strict=True):
        deviation = math.sqrt(count - before)
        low, high = 0.0, _REACH
        for _ in range(40):
            middle = (low + high) / 2.0
            crossing = _share_above((middle * math.sqrt(count) - sums) / deviation)
            if float(mass @ crossing) > error * share - spent:
                low = middle
            else:
                high = middle
        levels.append(1.0 - NormalDist().cdf(high))
        to, weights = _below(high, count)
        steps = np.subtract.outer(to, sums) / deviation
        density = np.exp(-(steps**2) / 2.0) @ mass / (math.sqrt(2.0 * math.pi) * deviation)
        sums, mass = to, density * weights
        spent, before = error * share, count
    return tuple(levels)


def _share_above(bounds: np.ndarray) -> np.ndarray:
    """Shares of the standard normal distribution above these bounds."""
    return np.array([math.erfc(bound / math.sqrt(2.0)) / 2.0 for bound in bounds.ravel()])


def _below(bound: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Grid of the sums of `count` values below the bound, with trapezoidal weights."""
    scale = math.sqrt(count)
    sums = np.linspace(-_REACH * scale, bound * scale, _POINTS)
    weights = np.full(_POINTS, sums[1] - sums[0])
    weights[[0, -1]] /= 2.0
    return sums, weights
