"""Gains and their intervals against numbers worked out by hand and read from Student's tables."""

from __future__ import annotations

import math

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.reports.keys import Gain
from tuccl.reports.ratios import MeasuredGain, key_gains, mean_gain
from tuccl.search.trials.config import Task

SHAPE = Shape(4, 1, 4)
SMALL, LARGE = (Task(Collective.ALL_REDUCE, size, SHAPE) for size in (1024, 2048))
E = math.e


def test_a_key_alone_has_its_own_variance() -> None:
    """Logarithms 0, 0.1 and 0.2: mean 0.1, variance 0.01, and Student's 4.3027 at 2 degrees."""
    gains = key_gains({SMALL: [10.0, 10.0 * E**0.1, 10.0 * E**0.2]}, {SMALL: [10.0, 10.0, 10.0]})
    reach = 4.30265 * 0.1 / math.sqrt(3.0)
    assert gains[SMALL].ratio == pytest.approx(E**0.1)
    assert gains[SMALL].low == pytest.approx(E ** (0.1 - reach), rel=1e-5)
    assert gains[SMALL].high == pytest.approx(E ** (0.1 + reach), rel=1e-5)
    # A further round has its own variance and that of the mean: 0.01 + 0.01 / 3.
    further = 4.30265 * math.sqrt(0.01 + 0.01 / 3.0)
    assert gains[SMALL].one_more_round == pytest.approx(E ** (0.1 + further), rel=1e-5)


def test_keys_share_their_variance_and_their_intervals_hold_together() -> None:
    """Variances 0.02 and 0.005 of two rounds: 0.0125 with 2 degrees, as they may well be alike.

    Two keys at 95 % together are 97.5 % each: Student's 6.2053 at 2 degrees.
    """
    gains = key_gains(
        {SMALL: [E**0.2, 1.0], LARGE: [E**0.5, E**0.4]}, {SMALL: [1.0, 1.0], LARGE: [1.0, 1.0]}
    )
    assert gains[SMALL].ratio == pytest.approx(E**0.1)
    assert gains[LARGE].ratio == pytest.approx(E**0.45)
    shared = 6.20535 * math.sqrt(0.0125 / 2.0)
    assert gains[SMALL].low == pytest.approx(E ** (0.1 - shared), rel=1e-5)
    assert gains[LARGE].high == pytest.approx(E ** (0.45 + shared), rel=1e-5)


def test_the_mean_over_all_keys_is_as_noisy_as_the_means_of_rounds() -> None:
    """Keys that are off by the same in a round do not average that out.

    Means of the rounds: 0.1 and 0.3; half their distance is the error, and 12.7062 Student's.
    """
    gain = mean_gain(
        {SMALL: [E**0.1, E**0.3], LARGE: [E**0.1, E**0.3]}, {SMALL: [1.0, 1.0], LARGE: [1.0, 1.0]}
    )
    assert gain.ratio == pytest.approx(E**0.2)
    assert gain.low == pytest.approx(E ** (0.2 - 12.7062 * 0.1), rel=1e-5)
    assert gain.high == pytest.approx(E ** (0.2 + 12.7062 * 0.1), rel=1e-5)


def test_a_ratio_is_of_times_of_the_same_round() -> None:
    """A machine that slows down by half meanwhile shows no gain and no loss."""
    gain = mean_gain({SMALL: [10.0, 20.0, 15.0]}, {SMALL: [5.0, 10.0, 7.5]})
    assert (gain.ratio, gain.low, gain.high) == pytest.approx((2.0, 2.0, 2.0))


def test_a_promise_is_broken_beyond_its_own_interval_and_that_of_the_gain() -> None:
    """Widths 0.03 and 0.04 in logarithms are 0.05 together."""
    gain = MeasuredGain(E**0.10, E**0.07, E**0.13, E**0.20)
    for promised, broken in ((E**0.149, False), (E**0.151, True)):
        stated = Gain(promised, promised * E**-0.04, promised * E**0.04)
        assert gain.falls_short(stated) == broken
    # Without bounds it may be off by as much as one more round.
    assert not gain.falls_short(Gain(E**0.199, None, None))
    assert gain.falls_short(Gain(E**0.201, None, None))
