"""How far the times of the same calls differ, within a start of the workers and between two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median, variance

from tuccl.statistics.estimators import MEDIAN_TO_MEAN_ERROR, log_deviation, quartile_spread
from tuccl.statistics.pooling import MeanError

_MUCH = 0.02
"""Between what NVLink shows, some tenths of a per cent, and TCP, 5 to 15 %: from there on starts
differ so much that nothing one start showed, a gain or none, says much about another."""
_QUARTILE = NormalDist().inv_cdf(0.75)
_FEWEST = 4
"""Samples that have quartiles."""


def is_unsteady(samples: Sequence[Sequence[float]]) -> bool:
    """Whether samples of one start, by key, differ so much that starts may.

    The median key decides, so that a few odd ones do not.
    """
    return median(map(log_deviation, samples)) >= _MUCH


def has_moved(first: Sequence[Sequence[float]], last: Sequence[Sequence[float]]) -> bool:
    """Whether the times of one start, by key, are far from those of another."""
    return median(map(abs, _shifts(first, last))) >= _MUCH


def between_starts(first: Sequence[Sequence[float]], last: Sequence[Sequence[float]]) -> MeanError:
    """How far a ratio of two calls in one start may be off what others show.

    Each key has samples of the same call in two starts. What moved all keys alike cancels in a
    ratio, so the shifts' variance counts, less what their samples explain: a component of variance
    (Snedecor and Cochran, Statistical Methods, 8th edition, 13.3). A ratio has two calls, each with
    an error of its own, as a shift has two starts. A single key tells nothing of what is common.
    """
    shifts = _shifts(first, last)
    degrees = max(1, len(shifts) - 1)
    seen = variance(shifts) if len(shifts) > 1 else shifts[0] ** 2
    sigma = fmean(quartile_spread(one) if len(one) >= _FEWEST else 0.0 for one in first) / _QUARTILE
    of_samples = fmean(
        (sigma * MEDIAN_TO_MEAN_ERROR) ** 2 * (1.0 / len(one) + 1.0 / len(other))
        for one, other in zip(first, last, strict=True)
    )
    return MeanError(math.sqrt(max(0.0, seen - of_samples)), degrees)


def _shifts(first: Sequence[Sequence[float]], last: Sequence[Sequence[float]]) -> list[float]:
    """Logarithm of the last median over the first one, by key."""
    return [
        math.log(median(later) / median(earlier))
        for earlier, later in zip(first, last, strict=True)
    ]
