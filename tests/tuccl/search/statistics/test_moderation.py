import math
import random
from collections.abc import Mapping
from statistics import median

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tuccl.search.statistics.distributions import student_quantile
from tuccl.search.statistics.moderation import (
    KnownMean,
    MeanError,
    PooledDeviation,
    VariancePrior,
    means_together,
    variance_level,
)

# A prior of two degrees, from two variances of two degrees each: the variance of their logarithms,
# half their squared difference, is taken for larger by half a standard error, sqrt(2) / 2 times of
# itself, and is then twice trigamma(1), pi^2 / 6: half of it is explained.
APART = math.exp(math.sqrt(2.0 * 2.0 * math.pi**2 / 6.0 / (1.0 + math.sqrt(0.5))))


def triple(variance: float) -> list[float]:
    """Three values with a mean of 0."""
    return [-math.sqrt(variance), 0.0, math.sqrt(variance)]


def is_about(found: MeanError, error: float, degrees: float) -> bool:
    return found.error == pytest.approx(error) and found.degrees == pytest.approx(degrees)


def test_a_prior_has_the_mean_of_logarithms_and_the_degrees_that_explain_their_variance() -> None:
    prior = VariancePrior.of([triple(1.0), triple(APART), [7.0]])
    assert pytest.approx(7.1225, abs=1e-3) == APART
    assert prior.variance == pytest.approx(math.sqrt(APART))  # 2.6688
    assert prior.degrees == pytest.approx(2.0)
    assert (prior.known, prior.keys, prior.outliers) == (4, 2, ())
    # (2 x 2.6688 + 2 x 1) / 4 = 1.8344; of three values.
    assert is_about(prior.of_mean(triple(1.0)), math.sqrt(1.83439 / 3.0), 4)
    # No more degrees than all keys have together: 3 + 2 of four values.
    assert prior.of_mean([-1.0, 1.0, -1.0, 1.0]).degrees == 4
    assert is_about(prior.of_one_value(), math.sqrt(math.sqrt(APART)), 2)


def test_keys_that_vary_alike_are_known_as_well_as_all_of_them() -> None:
    prior = VariancePrior.of([[0.0, 2.0], [0.0, 2.0], [0.0, 2.0]])
    assert (prior.variance, prior.degrees, prior.known) == (2.0, math.inf, 3)
    assert is_about(prior.of_mean([0.0, 2.0]), 1.0, 3)
    assert is_about(prior.of_mean([0.0, 0.0]), 1.0, 3)
    assert is_about(prior.of_one_value(), math.sqrt(2.0), 3)


def test_a_key_without_others_stands_for_itself() -> None:
    for prior in (VariancePrior.of([]), VariancePrior.of([[1.0, 3.0]])):
        assert is_about(prior.of_mean([1.0, 3.0]), 1.0, 1)
        assert math.isinf(prior.of_one_value().error)


def test_values_without_variance_have_no_error_unless_others_vary() -> None:
    prior = VariancePrior.of([[1.0, 1.0]] * 3)
    assert is_about(prior.of_mean([1.0, 1.0]), 0.0, 3)
    mixed = VariancePrior.of([[5.0] * 3, triple(1.0), triple(1.0)])
    assert 0.0 < mixed.of_mean([5.0] * 3).error < mixed.of_mean(triple(1.0)).error


def test_a_key_far_noisier_than_all_others_has_a_prior_of_its_own() -> None:
    quiet = [[0.0, 2.0]] * 5
    prior = VariancePrior.of([*quiet, [0.0, 20.0]])
    assert (prior.variance, prior.degrees, prior.known) == (2.0, math.inf, 5)
    assert prior.outliers == (200.0,)
    assert is_about(prior.of_mean([0.0, 2.0]), 1.0, 5)
    # F of 1 and 5 degrees exceeds 100 with t of 5 degrees beyond 10: 1.709e-4. Of six keys half a
    # key is so rare by its rank: alike with 12 x 1.709e-4. 5 ln 0.5 / ln 1.709e-4 is 0.3996.
    alike = 12.0 * 1.709e-4
    degrees = alike * 5.0 + (1.0 - alike) * 0.3996
    moderated = (degrees * 2.0 + 200.0) / (degrees + 1.0)
    found = prior.of_mean([0.0, 20.0])
    assert found.degrees == pytest.approx(1.0 + degrees, rel=1e-3)
    assert found.error == pytest.approx(math.sqrt(moderated / 2.0), rel=1e-3)
    two = VariancePrior.of([[0.0, 400.0], *quiet, [0.0, 20.0]])
    assert two.outliers == (80000.0, 200.0)
    assert VariancePrior.of([*quiet, [0.0, 6.0]]).outliers == ()


@given(st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=5), max_size=9), st.randoms())
def test_the_order_of_keys_does_not_matter(groups: list[list[float]], order: random.Random) -> None:
    shuffled = list(groups)
    order.shuffle(shuffled)
    assert VariancePrior.of(shuffled) == VariancePrior.of(groups)


@given(
    st.lists(st.lists(st.floats(-9, 9), min_size=2, max_size=5), min_size=1, max_size=9),
    st.floats(-5, 5),
)
def test_means_are_not_borrowed(groups: list[list[float]], shift: float) -> None:
    """What a key is on average changes no error, but for rounding."""
    moved = [[value + shift * n for value in own] for n, own in enumerate(groups)]
    assume(all(max(own) - min(own) > 0.01 for own in groups))
    prior, other = VariancePrior.of(groups), VariancePrior.of(moved)
    for own, there in zip(groups, moved, strict=True):
        assert other.of_mean(there).error == pytest.approx(prior.of_mean(own).error, rel=1e-6)


@pytest.mark.parametrize(("differing", "most"), [(0.0, 0.016), (3.0, 0.018)])
def test_bounds_hold_where_keys_are_alike_and_nearly_where_they_differ(
    differing: float, most: float
) -> None:
    """Claimed is 1 %, of 3 starts of 16 keys."""
    rng = np.random.default_rng(3)
    runs = 400
    mistaken = 0
    for _ in range(runs):
        scale = np.sqrt(differing / rng.chisquare(differing, (16, 1))) if differing else 1.0
        gains = (scale * rng.normal(0.0, 1.0, (16, 3))).tolist()
        prior = VariancePrior.of(gains)
        for own in gains:
            mean = prior.of_mean(own)
            reach = student_quantile(0.99, round(mean.degrees, 1)) * mean.error
            mistaken += sum(own) / 3.0 > reach
    assert mistaken / (16 * runs) <= most


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


def groups_of(sigma: float, keys: int, seed: int) -> list[list[float]]:
    rng = random.Random(seed)
    return [[rng.gauss(0.0, sigma) for _ in range(4)] for _ in range(keys)]


def test_the_level_of_variances_is_their_ratio_drawn_to_1_by_its_error() -> None:
    """Variances 4 and 4 e against 1 and e: the logarithms differ by ln 4, with error 0.5 of both.

    Their variance is 0.5 in each pair, so that of the difference of means is 0.25 + 0.25.
    """
    pairs = [[0.0, math.sqrt(2.0)], [0.0, math.sqrt(2.0 * math.e)]]
    twice = [[2.0 * value for value in own] for own in pairs]
    difference = math.log(4.0)
    expected = math.exp(difference * (1.0 - 0.5 / difference**2))
    assert variance_level(twice, pairs) == pytest.approx(expected)
    assert variance_level(pairs, twice) == pytest.approx(1.0 / expected)


def test_keys_that_vary_alike_or_are_few_have_the_same_level() -> None:
    pairs = [[0.0, 1.0], [0.0, 1.5], [0.0, 0.5]]
    assert variance_level([[0.0, 1.1], [0.0, 1.4], [0.0, 0.6]], pairs) == 1.0
    assert variance_level([[0.0, 9.0], [1.0]], pairs) == 1.0
    assert variance_level([], pairs) == 1.0
    assert variance_level([[1.0, 1.0], [2.0, 2.0]], pairs) == 1.0


def test_the_level_of_many_keys_is_near_the_truth() -> None:
    level = variance_level(groups_of(0.27, 40, 1), groups_of(0.065, 40, 2))
    assert level == pytest.approx((0.27 / 0.065) ** 2, rel=0.5)


def test_a_prior_times_a_level_has_its_variances_times_the_level() -> None:
    groups = groups_of(0.1, 12, 3)
    prior, louder = (VariancePrior.of([[f * v for v in own] for own in groups]) for f in (1, 3))
    values = [0.1, 0.3, 0.2]
    scaled = prior.times(9.0).of_mean([3.0 * value for value in values])
    assert (scaled.error, scaled.degrees) == pytest.approx(
        (3.0 * prior.of_mean(values).error, prior.of_mean(values).degrees)
    )
    assert prior.times(9.0).variance == pytest.approx(louder.variance)


def test_the_reach_of_a_mean_is_that_of_keys_of_its_kind() -> None:
    """Forty keys whose values deviate by 0.2, and forty whose values deviate by 0.02."""
    loud, quiet = groups_of(0.2, 40, 4), groups_of(0.02, 40, 5)
    groups = {("loud", at): own for at, own in enumerate(loud)}
    groups |= {("quiet", at): own for at, own in enumerate(quiet)}

    def reach(found: Mapping[tuple[str, int], KnownMean], kind: str) -> float:
        return median(mean.reach for (own, _), mean in found.items() if own == kind)

    together = means_together(groups, 0.01)
    by_kind = means_together(groups, 0.01, lambda key: key[0])
    assert reach(by_kind, "loud") == pytest.approx(10.0 * reach(by_kind, "quiet"), rel=0.3)
    assert reach(by_kind, "quiet") < 0.8 * reach(together, "quiet")
    assert {key: mean.value for key, mean in by_kind.items()} == {
        key: mean.value for key, mean in together.items()
    }
