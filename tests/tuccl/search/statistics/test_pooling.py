import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.search.statistics.distributions import fisher_quantile, student_quantile
from tuccl.search.statistics.pooling import MeanError, PooledDeviation, PooledVariance


def is_about(found: MeanError, error: float, degrees: int) -> bool:
    return found.error == pytest.approx(error) and found.degrees == degrees


def test_variances_are_pooled_by_their_degrees() -> None:
    # Squares 2 of [1, 3] with 1 degree and 2 of [0, 1, 2] with 2; a single value says nothing.
    pool = PooledVariance.of([[1.0, 3.0], [0.0, 1.0, 2.0], [7.0]])
    assert (pool.squares, pool.degrees) == (4.0, 3)
    assert pool.variance == pytest.approx(4.0 / 3.0)
    assert PooledVariance.of([]).variance == 0.0


def test_a_key_far_noisier_than_all_others_does_not_count_for_them() -> None:
    quiet = [[0.0, 2.0]] * 5
    # Variances of 2 with one degree each; F of 1 and 5 degrees is 37.7 at 1 - 0.01 / 6.
    assert fisher_quantile(1.0 - 0.01 / 6, 1, 5) == pytest.approx(37.7, abs=0.05)
    hangs = PooledVariance.of([*quiet, [0.0, 20.0]])
    assert (hangs.squares, hangs.degrees) == (10.0, 5)
    two_hang = PooledVariance.of([[0.0, 400.0], *quiet, [0.0, 20.0]])
    assert (two_hang.squares, two_hang.degrees) == (10.0, 5)
    louder = PooledVariance.of([*quiet, [0.0, 6.0]])
    assert (louder.squares, louder.degrees) == (28.0, 6)


@given(st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=5), max_size=9))
def test_the_order_of_keys_does_not_matter(groups: list[list[float]]) -> None:
    pool = PooledVariance.of(groups)
    again = PooledVariance.of(groups[::-1])
    assert again.degrees == pool.degrees
    assert again.squares == pytest.approx(pool.squares)


def test_keys_that_are_alike_are_all_pooled_but_for_one_in_a_hundred_pools() -> None:
    rng = np.random.default_rng(5)
    pools = [PooledVariance.of(rng.normal(0.0, 1.0, (12, 3)).tolist()) for _ in range(2000)]
    assert 0.004 <= np.mean([pool.degrees < 24 for pool in pools]) <= 0.02


def test_a_key_like_the_others_is_known_as_well_as_all_of_them() -> None:
    others = PooledVariance(squares=4.0, degrees=4)
    quiet = others.of_mean([0.0, 0.0, 0.0])
    # All together: 4 / 6; three values.
    assert is_about(quiet, math.sqrt(4.0 / 6.0 / 3.0), 6)
    # Its own variance is 4, that of the others 1, and 4 is not much with 2 degrees.
    louder = others.of_mean([-2.0, 0.0, 2.0])
    assert is_about(louder, math.sqrt(4.0 / 3.0), 6)


def test_a_key_far_noisier_than_the_others_stands_for_itself() -> None:
    others = PooledVariance(squares=40.0, degrees=40)
    # F of 2 and 40 degrees: 20 (0.04^(-1/20) - 1) = 3.49 at 96 %, 6.36 at 99.6 %.
    assert fisher_quantile(0.96, 2, 40) == pytest.approx(3.49, abs=0.005)
    assert fisher_quantile(0.996, 2, 40) == pytest.approx(6.36, abs=0.005)
    assert is_about(others.of_mean([-2.0, 0.0, 2.0]), math.sqrt(4.0 / 3.0), 2)
    assert others.of_mean([-2.0, 0.0, 2.0], together=10).degrees == 42
    assert others.of_mean([-3.0, 0.0, 3.0], together=10).degrees == 2


def test_a_key_without_others_stands_for_itself() -> None:
    alone = PooledVariance.of([]).of_mean([1.0, 3.0])
    assert is_about(alone, 1.0, 1)


@pytest.mark.parametrize(("louder", "most"), [(1.0, 0.011), (2.0, 0.02), (5.0, 0.02)])
def test_bounds_hold_for_keys_as_noisy_as_others_and_nearly_for_noisier_ones(
    louder: float, most: float
) -> None:
    """Claimed is 1 %, of 8 starts of a key beside 7 others."""
    rng = np.random.default_rng(3)
    runs = 4000
    mistaken = 0
    for _ in range(runs):
        others = PooledVariance.of(rng.normal(0.0, 1.0, (7, 8)).tolist())
        gains = (louder * rng.normal(0.0, 1.0, 8)).tolist()
        mean = others.of_mean(gains)
        mistaken += float(np.mean(gains)) > student_quantile(0.99, mean.degrees) * mean.error
    assert mistaken / runs <= most


def test_deviations_of_a_call_take_the_place_of_those_of_fewer_samples() -> None:
    deviation = PooledDeviation()
    assert deviation.error(1) == pytest.approx(0.03 * math.sqrt(math.pi / 2.0))
    few = deviation.replacing((), (98.0, 100.0, 103.0))
    assert few.total == pytest.approx(0.08)
    assert few.degrees == 3
    more = few.replacing((98.0, 100.0, 103.0), (98.0, 100.0, 103.0, 100.0))
    assert more.total == pytest.approx(0.08)
    assert more.degrees == 4
    assert few.replacing((), (98.0,)) == few
