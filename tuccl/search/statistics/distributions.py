"""Student's and Fisher's distribution, and the logarithmic derivatives of the gamma function.

The distributions come from the regularised incomplete beta function, by its continued fraction
(Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8; relations 26.5.27 and 26.6.2);
quantiles are found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TERMS = 400
_PRECISION = 1e-14
_TINY = 1e-300
_FARTHEST = 1e9
_MANY_DEGREES = 1e4
"""Degrees of freedom that infinitely many are taken for."""
_ASYMPTOTIC = 10.0
"""Argument from which the asymptotic series of the gamma function's derivatives are exact to
1e-12."""


@lru_cache(maxsize=4096)
def student_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's distribution at a probability of a half or more."""
    degrees = min(degrees, _MANY_DEGREES)

    def beyond(distance: float) -> float:
        return incomplete_beta(degrees / (degrees + distance**2), degrees / 2.0, 0.5) / 2.0

    return _inverse(beyond, 1.0 - probability)


def fisher_tail(ratio: float, degrees: float, below_degrees: float) -> float:
    """Probability that a ratio of two estimates of one variance is larger than this."""
    below = min(below_degrees, _MANY_DEGREES)
    return incomplete_beta(below / (below + degrees * ratio), below / 2.0, degrees / 2.0)


def digamma(x: float) -> float:
    """Derivative of ln gamma, for x above 0 (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    shift = 0.0
    while x < _ASYMPTOTIC:
        shift -= 1.0 / x
        x += 1.0
    y = 1.0 / x**2
    series = 1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y / 132.0)))
    return shift + math.log(x) - 0.5 / x - y * series


def trigamma(x: float) -> float:
    """Second derivative of ln gamma, for x above 0 (Abramowitz and Stegun, 6.4.6 and 6.4.12)."""
    shift = 0.0
    while x < _ASYMPTOTIC:
        shift += 1.0 / x**2
        x += 1.0
    y = 1.0 / x**2
    series = 1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y * (1.0 / 30.0 - y * 5.0 / 66.0)))
    return shift + 1.0 / x + y / 2.0 + y / x * series


def trigamma_inverse(value: float) -> float:
    """Argument above 0 at which trigamma, which falls from infinity to 0, has this value."""

    def beyond(x: float) -> float:
        return trigamma(x) if x > 0.0 else math.inf

    return _inverse(beyond, value)


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
    """Distance above 0 at which `beyond`, which falls with it, reaches `share`."""
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
