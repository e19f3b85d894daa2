"""Deviation of the same call's times within one start of the workers and between two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median, variance

from tuccl.search.statistics.estimators import MEDIAN_TO_MEAN_ERROR, log_deviation, quartile_spread
from tuccl.search.statistics.moderation import MeanError

_MUCH = 0.02
"""Deviation of logarithms from which one start says little about the next: between NVLink's tenths
of a per cent and TCP's 5 to 15 %."""
_QUARTILE = NormalDist().inv_cdf(0.75)
_FEWEST = 4
"""Least number of samples with quartiles."""


def is_unsteady(samples: Sequence[Sequence[float]]) -> bool:
    """Whether the samples of one start, key by key, differ so much that starts may differ too.

    The median over keys decides, so that a few unusual keys do not.
    """
    return median(map(log_deviation, samples)) >= _MUCH


def has_moved(first: Sequence[Sequence[float]], last: Sequence[Sequence[float]]) -> bool:
    """Whether the median key moved far from the first start to the last."""
    return median(map(abs, _shifts(first, last))) >= _MUCH


def between_starts(first: Sequence[Sequence[float]], last: Sequence[Sequence[float]]) -> MeanError:
    """Standard error, from start to start, of the logarithm of a ratio of two calls.

    Each key has samples of the same call in two starts. A shift that all keys share cancels in a
    ratio, so the variance of the shifts counts, less what the samples explain: a component of
    variance (Snedecor and Cochran, Statistical Methods, 8th edition, 13.3). A ratio has two calls
    with an error each, as a shift has two starts. With a single key nothing can cancel.
    """
    shifts = _shifts(first, last)
    degrees = max(1, len(shifts) - 1)
    seen = variance(shifts) if len(shifts) > 1 else shifts[0] ** 2
    spreads = [quartile_spread(samples) if len(samples) >= _FEWEST else 0.0 for samples in first]
    sigma = fmean(spreads) / _QUARTILE
    within = fmean(
        (sigma * MEDIAN_TO_MEAN_ERROR) ** 2 * (1.0 / len(earlier) + 1.0 / len(later))
        for earlier, later in zip(first, last, strict=True)
    )
    return MeanError(math.sqrt(max(0.0, seen - within)), degrees)


def _shifts(first: Sequence[Sequence[float]], last: Sequence[Sequence[float]]) -> list[float]:
    """Logarithms of the last start's median over the first start's, key by key."""
    return [
        math.log(median(later) / median(earlier))
        for earlier, later in zip(first, last, strict=True)
    ]
