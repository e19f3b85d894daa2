"""Quantiles of Student's and Fisher's distribution.

They come from the regularised incomplete beta function, by its continued fraction
(Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8; relations 26.5.27 and 26.6.2),
and are inverted by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TERMS = 400
_PRECISION = 1e-14
_TINY = 1e-300
_FARTHEST = 1e9


@lru_cache(maxsize=4096)
def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's distribution at a probability of a half or more."""

    def beyond(distance: float) -> float:
        return incomplete_beta(degrees / (degrees + distance**2), degrees / 2.0, 0.5) / 2.0

    return _inverse(beyond, 1.0 - probability)


@lru_cache(maxsize=4096)
def fisher_quantile(probability: float, degrees: int, below_degrees: int) -> float:
    """Quantile of the ratio of two estimates of one variance, with these degrees of freedom."""

    def beyond(ratio: float) -> float:
        share = below_degrees / (below_degrees + degrees * ratio)
        return incomplete_beta(share, below_degrees / 2.0, degrees / 2.0)

    return _inverse(beyond, 1.0 - probability)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b) for x between 0 and 1."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # There the fraction converges faster on the other side.
        return 1.0 - incomplete_beta(1.0 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) / a * _continued_fraction(x, a, b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the fraction by Lentz's method (Numerical Recipes, third edition, 5.2 and 6.4)."""
    c, d = 1.0, 1.0 / _away_from_0(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        change = 1.0
        for numerator in (even, odd):
            d = 1.0 / _away_from_0(1.0 + numerator * d)
            c = _away_from_0(1.0 + numerator / c)
            change = c * d
            value *= change
        if abs(change - 1.0) < _PRECISION:
            break
    return value


def _away_from_0(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _inverse(beyond: Callable[[float], float], share: float) -> float:
    """Distance at which `beyond`, which falls from 1 at most, reaches `share`."""
    low, high = 0.0, 1.0
    while beyond(high) > share and high < _FARTHEST:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = (low + high) / 2.0
        if beyond(middle) > share:
            low = middle
        else:
            high = middle
    return high
