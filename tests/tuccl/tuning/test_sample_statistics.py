import pytest

from tuccl.tuning.sample_statistics import (
    fisher_quantile_of_2,
    interquartile_mean,
    student_quantile,
)


def test_two_modes_in_turn_give_their_middle_and_outliers_nothing() -> None:
    assert interquartile_mean([24.0, 55.0] * 4) == pytest.approx(39.5)
    assert interquartile_mean([20.0, 21.0, 22.0, 23.0, 1000.0]) == pytest.approx(22.0)
    assert interquartile_mean([7.0]) == 7.0


def test_quantiles_are_those_of_the_tables() -> None:
    # Abramowitz and Stegun, table 26.10.
    known = {(0.95, 1): 6.314, (0.95, 2): 2.920, (0.99, 5): 3.365, (0.995, 16): 2.921}
    for (probability, degrees), quantile in known.items():
        assert student_quantile(probability, degrees) == pytest.approx(quantile, abs=5e-4)


def test_quantiles_of_a_ratio_of_variances_are_those_of_the_tables() -> None:
    # Abramowitz and Stegun, table 26.9.
    known = {(0.995, 2): 199.0, (0.995, 4): 26.28, (0.995, 14): 7.92, (0.95, 10): 4.10}
    for (probability, degrees), quantile in known.items():
        assert fisher_quantile_of_2(probability, degrees) == pytest.approx(quantile, rel=1e-3)
