"""Variances over keys together, and when a key stands for itself.

A few starts say little about the variance of one key, so those of all keys are pooled (Snedecor and
Cochran, Statistical Methods, 8th edition, 12.2), and the key's own counts where it is larger. One
that is larger than that of the others by more than chance explains is not of the same kind. Such a
key is judged by its own starts alone, with their few degrees of freedom (a preliminary test:
Bancroft, Annals of Mathematical Statistics 15, 1944, p. 190).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuccl.statistics.distributions import fisher_quantile
from tuccl.statistics.estimators import (
    error_of_median,
    sigma_by_mean_deviation,
    sum_of_deviations,
)

_MISTAKEN = 0.04
"""How often keys that are as noisy as the others may be taken for noisier: one that wrongly stands
for itself needs more starts, one that wrongly does not is proved by luck."""


@dataclass(frozen=True, slots=True)
class MeanError:
    """Standard error of a mean, with the degrees of freedom that it is known with."""

    error: float
    degrees: int


@dataclass(frozen=True, slots=True)
class PooledVariance:
    """The variance of one value, by the values of all keys."""

    squares: float
    """Sum of squared deviations, each from its own key's mean."""
    degrees: int

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]]) -> PooledVariance:
        """By keys with so many values each; one with a single value says nothing."""
        squares, degrees = 0.0, 0
        for values in groups:
            if len(values) > 1:
                squares += _squares(values)
                degrees += len(values) - 1
        return cls(squares, degrees)

    @property
    def variance(self) -> float:
        """0 where nothing is known."""
        return self.squares / self.degrees if self.degrees else 0.0

    def of_mean(self, values: Sequence[float], together: int = 1) -> MeanError:
        """Standard error of the mean of a key's values; this pool is that of other keys.

        Where there are no other keys it stands for itself.

        Args:
            values: Two at least.
            together: So many keys, times looks, one claim is about, as that none of them is slower:
                then it has to be as rare that any of them wrongly stands for itself (Bonferroni).
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
class PooledDeviation:
    """Relative deviation of one sample from its call's median, over all calls of a search.

    The mean absolute one, because a few disturbed launches do not move it by much. A machine that
    has shown nothing yet is taken for one whose launches spread by 3 %, as if one sample had said
    so: between NVLink's 0.2 % and TCP's 10 %.
    """

    total: float = 0.03
    degrees: int = 1

    def replacing(self, before: Sequence[float], after: Sequence[float]) -> PooledDeviation:
        """With a call's samples in place of those that it had before, if it had any."""
        total, degrees = self.total, self.degrees
        for sign, samples in ((-1, before), (1, after)):
            if len(samples) > 1:
                total += sign * sum_of_deviations(samples)
                degrees += sign * (len(samples) - 1)
        return PooledDeviation(total, degrees)

    def error(self, count: int) -> float:
        """Relative standard error of the median of so many samples."""
        return error_of_median(sigma_by_mean_deviation(self.total / self.degrees), count)


def _squares(values: Sequence[float]) -> float:
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values)
