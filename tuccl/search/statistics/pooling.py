"""Variances pooled over keys, and the test that takes a key out of the pool.

A few starts say little about the variance of one key, so the variances of all keys are pooled
(Snedecor and Cochran, Statistical Methods, 8th edition, 12.2); the key's own counts if it is
larger. A key whose variance exceeds the pool's by more than chance explains leaves the pool and is
judged by its own starts, with their few degrees of freedom (a preliminary test: Bancroft, Annals of
Mathematical Statistics 15, 1944, p. 190). It does not count for the other keys either: one call
that hangs for 50 ms in one start would hide whatever the others gain or lose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import TypeVar

from tuccl.search.statistics.distributions import fisher_quantile, student_quantile
from tuccl.search.statistics.estimators import (
    error_of_median,
    sigma_by_mean_deviation,
    sum_of_deviations,
)

_MISTAKEN = 0.04
"""Probability that a key as noisy as the pool is taken out of it. A key wrongly taken out needs
more starts; a key wrongly left in is proved by luck."""
_OUTLYING = 0.01
"""Probability that any of keys that are equally noisy is left out of their pool, at each test."""


@dataclass(frozen=True, slots=True)
class MeanError:
    """Standard error of a mean and its degrees of freedom."""

    error: float
    degrees: int


@dataclass(frozen=True, slots=True)
class PooledVariance:
    """Variance of one value, estimated from the values of all keys."""

    squares: float
    """Sum of squared deviations from each key's own mean."""
    degrees: int

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]]) -> PooledVariance:
        """Pool the values of each key, without those that are far noisier than all others.

        The largest variance is compared with the pool of the others, then the next largest, until
        one is not an outlier by Cochran's test (Annals of Eugenics 11, 1941, p. 47; ISO 5725-2) and
        the F distribution, which takes keys with different numbers of values, too. A key with a
        single value adds nothing.
        """
        known = [cls(_squares(values), len(values) - 1) for values in groups if len(values) > 1]
        known.sort(key=lambda key: key.variance)
        quieter = list(
            accumulate(known, lambda a, b: cls(a.squares + b.squares, a.degrees + b.degrees))
        )
        while len(known) > 1 and known[-1]._is_outlier(quieter[-2], of=len(known)):
            known.pop()
            quieter.pop()
        return quieter[-1] if quieter else cls(0.0, 0)

    def _is_outlier(self, others: PooledVariance, of: int) -> bool:
        """Whether the largest of so many variances exceeds the others by more than chance does."""
        alike = 1.0 - _OUTLYING / of
        return self.variance > others.variance * fisher_quantile(
            alike, self.degrees, others.degrees
        )

    @property
    def variance(self) -> float:
        """Pooled variance; 0 without degrees of freedom."""
        return self.squares / self.degrees if self.degrees else 0.0

    def of_mean(self, values: Sequence[float], together: int = 1) -> MeanError:
        """Standard error of the mean of a key's values, this pool being that of the other keys.

        Args:
            values: The key's values, at least two.
            together: Keys times looks of one joint claim, such as "none of them is slower": the
                probability of taking a key out wrongly is divided among them (Bonferroni).
        """
        degrees = len(values) - 1
        squares = _squares(values)
        own = squares / degrees
        alike = 1.0 - _MISTAKEN / together
        if not self.degrees or own > self.variance * fisher_quantile(alike, degrees, self.degrees):
            return MeanError(math.sqrt(own / len(values)), degrees)
        pooled = PooledVariance(self.squares + squares, self.degrees + degrees)
        return MeanError(math.sqrt(max(own, pooled.variance) / len(values)), pooled.degrees)


@dataclass(frozen=True, slots=True)
class KnownMean:
    """A mean, and how far it may be off."""

    value: float
    reach: float


KeyT = TypeVar("KeyT")


def means_together(groups: Mapping[KeyT, Sequence[float]], error: float) -> dict[KeyT, KnownMean]:
    """Return the mean of each key's values; the variances of all others are pooled for it.

    Args:
        groups: The values, two of each key at least.
        error: Probability that a mean is off by more than its reach to either side.
    """
    found = {}
    for key, own in groups.items():
        others = PooledVariance.of(values for other, values in groups.items() if other != key)
        mean = others.of_mean(own, together=len(groups))
        reach = student_quantile(1.0 - error, mean.degrees) * mean.error
        found[key] = KnownMean(fmean(own), reach)
    return found


@dataclass(frozen=True, slots=True)
class PooledDeviation:
    """Relative deviation of one sample from its call's median, over all calls of a search.

    It is the mean absolute deviation, which a few disturbed launches do not move by much. It starts
    at 3 %, with the weight of one sample: between NVLink's 0.2 % and TCP's 10 %.
    """

    total: float = 0.03
    degrees: int = 1

    def replacing(self, before: Sequence[float], after: Sequence[float]) -> PooledDeviation:
        """Return the deviation with a call's samples replaced by a longer row of them."""
        total, degrees = self.total, self.degrees
        for sign, samples in ((-1, before), (1, after)):
            if len(samples) > 1:
                total += sign * sum_of_deviations(samples)
                degrees += sign * (len(samples) - 1)
        return PooledDeviation(total, degrees)

    def error(self, count: int) -> float:
        """Relative standard error of the median of `count` samples."""
        return error_of_median(sigma_by_mean_deviation(self.total / self.degrees), count)


def _squares(values: Sequence[float]) -> float:
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values)
