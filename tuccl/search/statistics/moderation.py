"""Variances of keys with few values each, moderated by what the variances of all keys are like.

A few starts say little about the variance of one key. A prior of all keys' variances is worth
`degrees` further values with the variance `variance`. It is fitted to the mean and the variance of
their logarithms, and a key's variance is the mean of its own and the prior's, weighed by their
degrees: an empirical Bayes estimate (Smyth, Statistical Applications in Genetics and Molecular
Biology 3, 2004, article 3, sections 4 and 6.2). Where keys vary alike the prior outweighs the few
values of a key; where they differ it hardly counts. Only variances are borrowed, never means.

A key far noisier than all others would make the prior of the others weak, so the fit leaves it out,
and its own prior has few degrees (Phipson, Lee, Majewski, Alexander and Smyth, Annals of Applied
Statistics 10, 2016, p. 946, section 4). They winsorize thousands of variances; with the few of a
communicator shape the largest is compared with the others instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, variance
from typing import TypeVar

from tuccl.search.statistics.distributions import (
    digamma,
    fisher_tail,
    student_quantile,
    trigamma,
    trigamma_inverse,
)
from tuccl.search.statistics.estimators import (
    error_of_median,
    sigma_by_mean_deviation,
    sum_of_deviations,
)

_OUTLYING = 0.01
"""Probability that any of keys that vary alike is left out of the prior, at each test."""
_LEAST_VARIANCE = 1e-5
"""Least variance in the fit, as a share of the median: the logarithm of 0 has no bound (as in
limma's fitFDist)."""

_CAUTION = 0.5
"""Standard errors by which the variance of the logarithms is taken for larger: few keys often look
more alike than they are, and a prior that is too strong proves what is luck. Of 24 keys of which
none gains, whose variances differ as much as with 3 degrees, 1.3 % are proved at 1 %; without it
1.5 %, of 8 keys 1.7 % instead of 1.9 %."""


@dataclass(frozen=True, slots=True)
class MeanError:
    """Standard error of a mean and its degrees of freedom."""

    error: float
    degrees: float


@dataclass(frozen=True, slots=True)
class VariancePrior:
    """The variance that a key's values are expected to have, and how many values that is worth."""

    variance: float = 0.0
    degrees: float = 0.0
    """0: nothing is known; infinite: all keys vary alike."""
    known: int = 0
    """Degrees of all variances behind it, which no mean's degrees exceed."""
    keys: int = 0
    """Number of variances, with those that were left out."""
    outliers: tuple[float, ...] = ()
    """Variances that were left out, the largest first."""

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]], *, robust: bool = True) -> VariancePrior:
        """Fit the prior to the values of each key; a single value says nothing.

        Args:
            groups: The values.
            robust: Whether keys far noisier than all others are left out: not where the prior is
                for a key of which it is unknown whether it is one of them.
        """
        fitted = sorted((variance(own), len(own) - 1) for own in groups if len(own) > 1)
        keys, outliers = len(fitted), []
        while (
            robust
            and len(fitted) > 2
            and _is_outlier(*fitted[-1], cls._fitted(fitted[:-1]), len(fitted))
        ):
            outliers.append(fitted.pop()[0])
        return replace(cls._fitted(fitted), keys=keys, outliers=tuple(outliers))

    @classmethod
    def _fitted(cls, own: Sequence[tuple[float, int]]) -> VariancePrior:
        """Fit to variances and their degrees, by the moments of their logarithms (Smyth, 6.2)."""
        known = sum(degrees for _, degrees in own)
        pooled = sum(value * degrees for value, degrees in own) / known if known else 0.0
        if len(own) < 2:
            return cls(pooled, 0.0, known)
        if not pooled:
            return cls(0.0, math.inf, known)
        logs = _log_variances(own)
        seen = variance(logs) * (1.0 + _CAUTION * math.sqrt(2.0 / (len(own) - 1)))
        unexplained = seen - fmean(trigamma(degrees / 2.0) for _, degrees in own)
        if unexplained <= 0.0:
            return cls(pooled, math.inf, known)
        prior = 2.0 * trigamma_inverse(unexplained)
        middle = fmean(logs) + digamma(prior / 2.0) - math.log(prior / 2.0)
        return cls(math.exp(middle), prior, known)

    def times(self, level: float) -> VariancePrior:
        """Return the prior of keys whose variances are so many times as large."""
        outliers = tuple(level * value for value in self.outliers)
        return replace(self, variance=level * self.variance, outliers=outliers)

    def of_mean(self, values: Sequence[float]) -> MeanError:
        """Standard error of the mean of a key's values, at least two."""
        own, degrees = variance(values), len(values) - 1
        prior = self._degrees_for(own, degrees)
        share = 1.0 if math.isinf(prior) else prior / (prior + degrees)
        moderated = share * self.variance + (1.0 - share) * own
        return MeanError(
            math.sqrt(moderated / len(values)), min(prior + degrees, max(self.known, degrees))
        )

    def of_one_value(self) -> MeanError:
        """Standard error of a single value of a key; infinite where nothing is known."""
        if not self._worth:
            return MeanError(math.inf, 1.0)
        return MeanError(math.sqrt(self.variance), self._worth)

    @property
    def _worth(self) -> float:
        return min(self.degrees, self.known)

    def _degrees_for(self, own: float, degrees: int) -> float:
        """Degrees of the prior for a variance: few for one that it does not explain.

        Phipson et al., equations 4 and 5: by how much rarer such a variance is than its rank says
        is the probability that it is as the others. The largest of all is ordinary under the prior
        that outliers have.
        """
        if not self.outliers or own < self.outliers[-1] or not self._worth:
            return self.degrees
        above = sum(other > own for other in self.outliers)
        tail, farthest = (
            fisher_tail(value / self.variance, degrees, self._worth)
            for value in (own, max(own, self.outliers[0]))
        )
        alike = min(1.0, tail * self.keys / (above + 0.5))
        outlying = self._worth * math.log(0.5) / math.log(farthest) if farthest > 0.0 else 0.0
        return alike * self._worth + (1.0 - alike) * min(self._worth, outlying)


def variance_level(some: Iterable[Sequence[float]], others: Iterable[Sequence[float]]) -> float:
    """Return how many times as large the variances of some keys are as those of others.

    The ratio of their geometric means, drawn to 1 by as much as it may be off, so that it is 1
    where the keys may well vary alike (the positive part of James and Stein's estimate, Fourth
    Berkeley Symposium 1, 1961, p. 361).

    Args:
        some: The values of each key; a single value says nothing.
        others: Those of the keys that they are compared with.
    """
    logs = [
        _log_variances([(variance(own), len(own) - 1) for own in groups if len(own) > 1])
        for groups in (some, others)
    ]
    if min(map(len, logs)) < 2:
        return 1.0
    difference = fmean(logs[0]) - fmean(logs[1])
    error = sum(variance(own) / len(own) for own in logs)
    if difference**2 <= error:
        return 1.0
    return math.exp(difference * (1.0 - error / difference**2))


def _log_variances(own: Sequence[tuple[float, int]]) -> list[float]:
    """Logarithms of variances with their degrees, free of the bias of few degrees (Smyth, 6.2).

    None where all variances are 0.
    """
    values = [value for value, _ in own]
    if not any(values):
        return []
    least = _LEAST_VARIANCE * (median(values) or fmean(values))
    return [
        math.log(max(least, value)) - digamma(degrees / 2.0) + math.log(degrees / 2.0)
        for value, degrees in own
    ]


def _is_outlier(own: float, degrees: int, others: VariancePrior, of: int) -> bool:
    """Whether the largest of so many variances exceeds what the others explain."""
    if not others.variance:
        return False
    return fisher_tail(own / others.variance, degrees, others._worth) < _OUTLYING / of


@dataclass(frozen=True, slots=True)
class KnownMean:
    """A mean, and how far it may be off."""

    value: float
    reach: float


KeyT = TypeVar("KeyT")


def means_together(
    groups: Mapping[KeyT, Sequence[float]],
    error: float,
    kind: Callable[[KeyT], object] = lambda _: None,
) -> dict[KeyT, KnownMean]:
    """Return the mean of each key's values; variances are moderated by those of all keys.

    Args:
        groups: The values, two of each key at least.
        error: Probability that a mean is off by more than its reach to either side.
        kind: What a key's values are of. Those of another kind than the first key's may vary so
            many times as much (`variance_level`).
    """
    by_kind: dict[object, list[Sequence[float]]] = {}
    for key, own in groups.items():
        by_kind.setdefault(kind(key), []).append(own)
    first = next(iter(by_kind.values()), [])
    levels = {which: variance_level(some, first) for which, some in by_kind.items()}
    prior = VariancePrior.of(
        [value / math.sqrt(levels[which]) for value in own]
        for which, some in by_kind.items()
        for own in some
    )
    found = {}
    for key, own in groups.items():
        mean = prior.times(levels[kind(key)]).of_mean(own)
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
