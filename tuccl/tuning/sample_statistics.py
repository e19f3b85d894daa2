"""What samples and starts are judged by: a mean for two modes, Student's and Fisher's quantiles."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

_ALIKE = 0.995
"""How often a key that is as noisy as the others is to be taken for one that is."""
_Key = TypeVar("_Key", bound=Hashable)


def interquartile_mean(values: Sequence[float]) -> float:
    """Of the middle half: deaf to outliers, as the median, but no jumping between two modes."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return fmean(ordered[quarter : len(ordered) - quarter])


def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's distribution, of a probability of a half or more.

    By bisection on the sums of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3
    and 26.7.4.
    """
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2.0
        if 0.5 + _student_within(middle, degrees) / 2.0 < probability:
            low = middle
        else:
            high = middle
    return high


def error_of_mean(key: _Key, variances: Mapping[_Key, float], starts: int) -> tuple[float, int]:
    """Standard error of a key's mean over starts, and the degrees of freedom it is known with.

    Few starts say little about the variance of a single key, so it is taken over all keys together;
    the key's own counts where it is larger, and alone where it is larger by far.

    Args:
        key: One of them.
        variances: Of every key over the starts.
        starts: Two at least.
    """
    own = variances[key]
    others = [other for name, other in variances.items() if name != key]
    # After three starts a key's own variance has 2 degrees; with more the quantile would be less.
    if others and own > fmean(others) * fisher_quantile_of_2(_ALIKE, len(others) * (starts - 1)):
        return math.sqrt(own / starts), starts - 1
    pooled = fmean(variances.values())
    return math.sqrt(max(own, pooled) / starts), len(variances) * (starts - 1)


def fisher_quantile_of_2(probability: float, degrees: int) -> float:
    """Quantile of F, of a variance known with 2 degrees over one known with so many.

    From the closed form of the share beyond f, (1 + 2 f / d)^(-d / 2).
    """
    return degrees / 2.0 * (math.pow(1.0 - probability, -2.0 / degrees) - 1.0)


def _student_within(distance: float, degrees: int) -> float:
    """Probability that Student's variable is at most so far from 0."""
    angle = math.atan(distance / math.sqrt(degrees))
    cosine = math.cos(angle)
    odd = degrees % 2
    term = total = (cosine if odd else 1.0) if degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    return 2.0 / math.pi * (angle + inside) if odd else inside
