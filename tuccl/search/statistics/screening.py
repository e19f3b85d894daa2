"""Screening: what each of several factors does to a time, from few runs.

A round is two runs: one with some of the factors and one with exactly the others (a folded-over
two-level design; Box and Hunter, The 2^(k-p) fractional factorial designs, Technometrics 3, 1961,
p. 311). The signs of the rounds are columns of a Hadamard matrix, so that every round informs on
every factor, and each effect is known as well as if all rounds were about it alone (Plackett and
Burman, The design of optimum multifactorial experiments, Biometrika 33, 1946, p. 305).

Effects multiply. What two factors do only together counts for each of them by half, since exactly
one run of a round has both or neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tuccl.search.statistics.distributions import student_quantile
from tuccl.search.statistics.intervals import Interval

_LEAST_DEGREES = 3
"""Degrees of freedom that the noise is estimated from at least; Student's distribution is wide
below."""

Signs = tuple[int, ...]
"""For each factor 1 where it is in a round's first half, else -1."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The speed with a factor over that without."""

    ratio: float
    bounds: Interval


def order_of(factors: int) -> int:
    """Return the order of the smallest Hadamard matrix of Sylvester's with enough columns.

    There is one for each factor, and one for the order of the halves of a round.
    """
    return 1 << factors.bit_length()


def rounds_for(factors: int, wanted: int) -> int:
    """Return the least number of rounds from which effects and their noise can be told.

    Args:
        factors: Number of factors, one at least.
        wanted: Rounds that are wanted at least.
    """
    order = order_of(factors)
    return order * math.ceil(max(wanted, factors + _LEAST_DEGREES) / order)


def signs_of_rounds(factors: int, rounds: int) -> tuple[Signs, ...]:
    """Return the signs of each round; the first round has all factors in its first half.

    Args:
        factors: Number of factors, one at least.
        rounds: A multiple of `order_of(factors)`.
    """
    order = order_of(factors)
    return tuple(
        tuple(_sign(number % order, factor) for factor in range(factors))
        for number in range(rounds)
    )


def _sign(row: int, column: int) -> int:
    """Return an element of Sylvester's matrix."""
    return 1 - 2 * ((row & column).bit_count() % 2)


def begins_with_first_half(number: int, factors: int) -> bool:
    """Whether a round, from 0 on, runs its first half first.

    The order has a column of its own, so that a drift within rounds is the effect of no factor.
    """
    return _sign(number % order_of(factors), factors) == 1


def effects(
    signs: Sequence[Signs], log_ratios: Sequence[float], error: float
) -> tuple[Effect, ...]:
    """Return the effect of each factor.

    Args:
        signs: Signs of each round, of `signs_of_rounds`.
        log_ratios: Logarithm of each round's speed with the first half over that with the others.
        error: Largest probability that a bound is on the wrong side of the effect.
    """
    rounds, factors = len(signs), len(signs[0])
    means = [
        fmean(own[factor] * value for own, value in zip(signs, log_ratios, strict=True))
        for factor in range(factors)
    ]
    # The columns are orthogonal: what the effects explain of the squares is the sum of theirs.
    left = sum(value**2 for value in log_ratios) - rounds * sum(mean**2 for mean in means)
    degrees = rounds - factors
    deviation = math.sqrt(max(0.0, left) / degrees)
    reach = student_quantile(1.0 - error, degrees) * deviation / math.sqrt(rounds)
    return tuple(
        Effect(math.exp(mean), Interval(math.exp(mean - reach), math.exp(mean + reach)))
        for mean in means
    )
