"""Bounds of sums of independent times."""

import math

import pytest

from tuccl.search.statistics.intervals import Interval
from tuccl.search.statistics.sums import interval_of_sum, log_widths, together


def test_distances_of_independent_times_add_as_squares() -> None:
    found = interval_of_sum([(10.0, Interval(7.0, 13.0)), (20.0, Interval(16.0, 24.0))])
    assert (found.low, found.high) == pytest.approx((25.0, 35.0))
    certain = interval_of_sum([(10.0, Interval(10.0, 10.0)), (5.0, Interval(4.0, math.inf))])
    assert (certain.low, certain.high) == (14.0, math.inf)


def test_distances_are_those_of_the_wanted_confidence() -> None:
    known = Interval(2.0 / math.exp(0.02326), 2.0 * math.exp(0.04652))
    found = log_widths(2.0, known, 0.99, 0.975)
    assert (found.low, found.high) == pytest.approx((0.0196, 0.0392), rel=1e-3)
    same = log_widths(2.0, known, 0.975, 0.975)
    assert (same.low, same.high) == pytest.approx((0.02326, 0.04652))


def test_what_is_not_known_stays_unknown() -> None:
    assert log_widths(2.0, Interval(0.0, math.inf), 0.99, 0.975) == Interval(math.inf, math.inf)


def test_factors_of_a_ratio_add_as_squares() -> None:
    assert together([Interval(0.3, 0.06), Interval(0.4, 0.08)]).low == pytest.approx(0.5)
    assert together([Interval(0.3, 0.06), Interval(0.4, 0.08)]).high == pytest.approx(0.1)
    assert together([]) == Interval(0.0, 0.0)
