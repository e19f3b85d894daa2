"""Allowances for several chances to be mistaken: comparisons made together, and repeated looks."""

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
    """Error of each of so many comparisons that leaves all of them together this one."""
    return error / comparisons


def false_discovery_level(error: float, comparisons: int, proved: Callable[[float], int]) -> float:
    """Error of each of so many comparisons that leaves this share of what is proved mistaken.

    The rule of Benjamini and Hochberg (Journal of the Royal Statistical Society B 57, 1995, p.
    289): of m comparisons r are proved at r / m of the error. Confidence bounds of that error are
    right for what was selected by them (Benjamini and Yekutieli, Journal of the American
    Statistical Association 100, 2005, p. 71).

    Args:
        error: Share of what is proved that may be mistaken, on average.
        comparisons: All that were made, one at least.
        proved: How many of them are with a certain error each; no more with a smaller one.
    """
    allowed = comparisons
    while allowed > 1 and (found := proved(error * allowed / comparisons)) < allowed:
        allowed = max(1, found)
    return error * allowed / comparisons


@dataclass(frozen=True, slots=True)
class Looks:
    """Repeated one-sided tests of data that grow.

    Looks at data that grow are alike, so that together they may have more error than parts of it
    would add up to. How much is spent when is the power family of Kim and DeMets (Biometrika 74,
    1987, p. 149) in the scheme of Lan and DeMets (Biometrika 70, 1983, p. 659). Each level follows
    from those before by the recursion of Armitage, McPherson and Rowe (Journal of the Royal
    Statistical Society A 132, 1969, p. 235), for normal values of known variance; as levels they
    serve Student's distribution too (Jennison and Turnbull, Group Sequential Methods, 2000, 3.8).
    To stop early because nothing is likely to be found only makes errors rarer.
    """

    planned: tuple[int, ...]
    """How many values there are at each look."""
    power: float
    """1 spends the error evenly, which ends most tests early; more than that keeps it for the late
    looks, which have most data."""

    def error_at(self, count: int, error: float, *, last: bool) -> float:
        """Error of the look at so many values.

        Args:
            count: Of a planned look, or where the data end for reasons of their own, as a budget.
            error: Of a bound on one side, over all looks.
            last: Whether no further look follows, so that nothing of the error need be kept.
        """
        counts = (*(one for one in self.planned if one < count), count)
        shares = [min(1.0, (one / self.planned[-1]) ** self.power) for one in counts]
        if last:
            shares[-1] = 1.0
        return _levels(error, counts, tuple(shares))[-1]


@lru_cache(maxsize=256)
def _levels(error: float, counts: tuple[int, ...], shares: tuple[float, ...]) -> tuple[float, ...]:
    """Error of each look; the shares of it that are spent by then, all looks before included."""
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
    """Of the standard normal distribution."""
    scaled = bounds.ravel() / math.sqrt(2.0)
    return np.array([math.erfc(one) / 2.0 for one in scaled])


def _below(bound: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of so many values that do not cross, with weights of the trapezoidal rule."""
    scale = math.sqrt(count)
    sums = np.linspace(-_REACH * scale, bound * scale, _POINTS)
    weights = np.full(_POINTS, sums[1] - sums[0])
    weights[[0, -1]] /= 2.0
    return sums, weights
