import math

import pytest

from tuccl.search.statistics.distributions import (
    digamma,
    fisher_tail,
    incomplete_beta,
    student_quantile,
    trigamma,
    trigamma_inverse,
)


def test_quantiles_of_student_are_those_of_the_tables() -> None:
    # Abramowitz and Stegun, table 26.10.
    known = {(0.95, 1): 6.314, (0.95, 2): 2.920, (0.99, 5): 3.365, (0.995, 16): 2.921}
    for (probability, degrees), quantile in known.items():
        assert student_quantile(probability, degrees) == pytest.approx(quantile, abs=5e-4)


def test_student_of_many_degrees_is_normal() -> None:
    assert student_quantile(0.975, 100_000) == pytest.approx(1.96, abs=1e-3)


def test_tails_of_a_ratio_of_variances_are_those_of_the_tables() -> None:
    # Abramowitz and Stegun, table 26.9.
    known = {
        (0.995, 2, 2): 199.0,
        (0.995, 2, 4): 26.28,
        (0.95, 2, 10): 4.10,
        (0.95, 5, 10): 3.33,
        (0.99, 10, 20): 3.37,
    }
    for (probability, degrees, others), quantile in known.items():
        assert fisher_tail(quantile, degrees, others) == pytest.approx(1.0 - probability, rel=5e-3)
    # With infinitely many degrees it is chi-square's: exp(-x) with 2.
    assert fisher_tail(3.0, 2, math.inf) == pytest.approx(math.exp(-3.0), rel=1e-3)


def test_derivatives_of_the_gamma_function_by_hand() -> None:
    euler = 0.5772156649015329
    assert digamma(1.0) == pytest.approx(-euler)
    assert digamma(0.5) == pytest.approx(-euler - 2.0 * math.log(2.0))
    assert trigamma(1.0) == pytest.approx(math.pi**2 / 6.0)
    assert trigamma(0.5) == pytest.approx(math.pi**2 / 2.0)
    assert trigamma_inverse(math.pi**2 / 6.0 - 1.0) == pytest.approx(2.0)
    for x in (1e-3, 0.3, 40.0, 1e6):
        assert trigamma_inverse(trigamma(x)) == pytest.approx(x)


def test_the_incomplete_beta_function_by_hand() -> None:
    # I_x(1, 1) = x; I_x(2, 1) = x^2; I_x(1, 3) = 1 - (1 - x)^3.
    assert incomplete_beta(0.3, 1.0, 1.0) == pytest.approx(0.3)
    assert incomplete_beta(0.3, 2.0, 1.0) == pytest.approx(0.09)
    assert incomplete_beta(0.9, 1.0, 3.0) == pytest.approx(0.999)
    assert (incomplete_beta(0.0, 2.0, 2.0), incomplete_beta(1.0, 2.0, 2.0)) == (0.0, 1.0)
