import math

import pytest

from tuccl.search.statistics.intervals import (
    UNKNOWN,
    Interval,
    interval_of_means,
    interval_of_two_starts,
    pairs_interval,
    student_interval,
    values_needed,
    widened,
)
from tuccl.search.statistics.moderation import MeanError


def test_bounds_of_a_mean_by_hand() -> None:
    # Of 0.1, 0.2, 0.3 the standard error is 0.1 / sqrt(3); t of 2 degrees at 95 %: 2.92.
    bounds = student_interval([0.1, 0.2, 0.3], MeanError(0.1 / math.sqrt(3.0), 2), 0.05)
    width = 2.92 * 0.057735
    assert bounds.low == pytest.approx(math.exp(0.2 - width), rel=1e-4)
    assert bounds.high == pytest.approx(math.exp(0.2 + width), rel=1e-4)


def test_what_starts_differ_by_adds_as_squares() -> None:
    # t of 5 degrees at 99 %: 3.365; 3 and 4 give 5.
    within = Interval(math.exp(0.1 - 0.03), math.exp(0.1 + 0.03))
    bounds = widened(math.exp(0.1), within, MeanError(0.04 / 3.365, 5), 0.01)
    assert bounds.low == pytest.approx(math.exp(0.05), rel=1e-4)
    assert bounds.high == pytest.approx(math.exp(0.15), rel=1e-4)


def test_where_starts_are_alike_or_nothing_is_known_bounds_stay() -> None:
    known = Interval(1.01, 1.03)
    assert widened(1.02, known, MeanError(0.0, 3), 0.01) is known
    assert widened(1.02, UNKNOWN, MeanError(0.1, 3), 0.01) is UNKNOWN


def test_two_starts_may_be_off_by_what_is_known_of_starts_or_by_what_samples_are() -> None:
    quiet = interval_of_two_starts(1.0, 0.001, 0.002)
    assert quiet.low == pytest.approx(math.exp(-0.018))
    assert quiet.high == pytest.approx(math.exp(0.018))
    noisy = interval_of_two_starts(2.0, 0.03, 0.1)
    assert noisy.low == pytest.approx(2.0 * math.exp(-0.19))


def test_the_median_of_pairs_is_that_of_the_means_of_all_pairs() -> None:
    """Logarithms 1, 2 and 4 have the means 1, 1.5, 2, 2.5, 3 and 4.

    Of the eight sets of the ranks 1, 2 and 3 one has the sum 0 and one the sum 1.
    """
    ratio, bounds = pairs_interval([math.exp(log) for log in (2.0, 4.0, 1.0)], 0.25)
    assert math.log(ratio) == pytest.approx(2.25)
    assert (math.log(bounds.low), math.log(bounds.high)) == pytest.approx((1.5, 3.0))
    _, wider = pairs_interval([math.exp(log) for log in (2.0, 4.0, 1.0)], 0.2)
    assert (math.log(wider.low), math.log(wider.high)) == pytest.approx((1.0, 4.0))
    _, unknown = pairs_interval([math.exp(log) for log in (2.0, 4.0, 1.0)], 0.12)
    assert (unknown.low, unknown.high) == (0.0, math.inf)


def test_bounds_of_15_pairs_are_those_of_the_table_of_signed_ranks() -> None:
    """Hollander, Wolfe and Chicken, table A.4: a sum of at most 19 with less than 1 %."""
    logs = [1.37**n for n in range(15)]
    means = sorted((a + b) / 2.0 for n, a in enumerate(logs) for b in logs[n:])
    _, bounds = pairs_interval([math.exp(log / 50.0) for log in logs], 0.01)
    assert math.log(bounds.low) == pytest.approx(means[19] / 50.0)
    assert math.log(bounds.high) == pytest.approx(means[-20] / 50.0)


def test_a_ratio_of_means_is_as_uncertain_as_both_of_them() -> None:
    """Means 20 and 30 of three, deviations 2 and 6: 0.1 and 0.2 of them, over the root of 3."""
    ratio, bounds = interval_of_means([18.0, 20.0, 22.0], [24.0, 30.0, 36.0], 0.01)
    width = 6.96456 * math.hypot(0.1, 0.2) / math.sqrt(3.0)
    assert ratio == pytest.approx(1.5)
    assert bounds.low == pytest.approx(1.5 * math.exp(-width), rel=1e-5)
    assert bounds.high == pytest.approx(1.5 * math.exp(width), rel=1e-5)


def test_the_values_that_a_proof_would_take_grow_with_the_square_of_what_is_missing() -> None:
    """The bound of 3 values is 0.19 below a logarithm of 0.1: 3 x 1.9^2 is 10.8."""
    known = Interval(math.exp(-0.09), math.exp(0.29))
    assert values_needed(math.exp(0.1), known, 3) == 11
    assert values_needed(math.exp(0.1), Interval(math.exp(0.01), 2.0), 3) == 3
    assert values_needed(0.99, known, 3) is None
    assert values_needed(1.1, UNKNOWN, 3) is None
