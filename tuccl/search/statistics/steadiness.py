"""Deviation of the same call's times within one start of the workers and between two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, variance

from tuccl.search.statistics.estimators import log_deviation
from tuccl.search.statistics.moderation import MeanError

_MUCH = 0.02
"""Deviation of logarithms from which one start says little about the next: between NVLink's tenths
of a per cent and TCP's 5 to 15 %."""


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
    ratio, so the deviation of the shifts counts. A ratio has two calls with an error each, as a
    shift has two starts. With a single key nothing can cancel. What the samples themselves explain
    of the shifts is not subtracted: the difference of two variances is 0 every now and then, on a
    shape in three over TCP, and would allow for nothing.
    """
    shifts = _shifts(first, last)
    seen = variance(shifts) if len(shifts) > 1 else shifts[0] ** 2
    return MeanError(math.sqrt(seen), max(1, len(shifts) - 1))


def _shifts(first: Sequence[Sequence[float]], last: Sequence[Sequence[float]]) -> list[float]:
    """Logarithms of the last start's median over the first start's, key by key."""
    return [
        math.log(median(later) / median(earlier))
        for earlier, later in zip(first, last, strict=True)
    ]
