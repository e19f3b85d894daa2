import math

import pytest

from tuccl.search.statistics.estimators import (
    error_of_median,
    error_of_weighted_mean,
    geometric_mean,
    interquartile_mean,
    log_deviation,
    log_gains,
    paired_ratios,
    quartile_spread,
    stalls,
    sum_of_deviations,
    time_in_a_job,
)


def test_two_modes_in_turn_give_their_middle_and_outliers_nothing() -> None:
    assert interquartile_mean([24.0, 55.0] * 4) == pytest.approx(39.5)
    assert interquartile_mean([20.0, 21.0, 22.0, 23.0, 1000.0]) == pytest.approx(22.0)
    assert interquartile_mean([7.0]) == 7.0


def test_gains_are_the_reference_over_the_other() -> None:
    assert paired_ratios([10.0, 20.0], [15.0, 10.0]) == [1.5, 0.5]
    assert log_gains([1.0, 2.0], [1.5, 1.0]) == [0.5, -1.0]
    assert geometric_mean([math.log(2.0), math.log(8.0)]) == pytest.approx(4.0)


def test_spreads_by_hand() -> None:
    # Logarithms 0 and 2 x: mean x, deviations x each, variance 2 x^2 over 1.
    assert log_deviation([1.0, math.exp(0.2)]) == pytest.approx(0.1 * math.sqrt(2.0))
    assert log_deviation([3.0]) == 0.0
    # Quarters of 8 are the third value and the sixth.
    assert quartile_spread([1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 99.0]) == pytest.approx(0.25)
    assert sum_of_deviations([90.0, 100.0, 130.0]) == pytest.approx(0.4)
    # A disturbed launch counts as one that took twice as long, however long it took.
    assert sum_of_deviations([90.0, 100.0, 250.0]) == pytest.approx(1.1)
    assert sum_of_deviations([10.0, 10.0, 2147483648.0]) == pytest.approx(1.0)


def test_errors_by_hand() -> None:
    assert error_of_median(0.03, 1) == pytest.approx(0.03)
    assert error_of_median(0.03, 9) == pytest.approx(0.01 * math.sqrt(math.pi / 2.0))
    assert error_of_weighted_mean([0.03, 0.04], [1.0, 1.0]) == pytest.approx(0.025)
    assert error_of_weighted_mean([0.03, 0.04], [3.0, 1.0]) == pytest.approx(math.hypot(9, 4) / 400)
    assert error_of_weighted_mean([], []) == 0.0


def test_stalls_count_at_their_rate_where_they_recur() -> None:
    four_of_15 = [10.0] * 11 + [30.0] * 4
    assert stalls(four_of_15) == 4
    # The mean that a job sees: (11 x 10 + 4 x 30) / 15.
    assert time_in_a_job(four_of_15, recur=True) == pytest.approx(230.0 / 15.0)
    assert time_in_a_job(four_of_15, recur=False) == pytest.approx(110.0 / 9.0)


def test_a_single_disturbed_launch_is_no_stall_and_neither_are_two_modes_in_turn() -> None:
    assert stalls([10.0] * 5 + [30.0]) == 0
    assert stalls([10.0] * 22 + [30.0] * 2) == 0, "less than a tenth"
    assert stalls([10.0] * 14 + [14.9] * 4) == 0
    assert stalls([10.0, 20.0] * 12) == 0
