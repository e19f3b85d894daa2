"""Effects of factors: by hand, against noise, and whatever their number."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.search.statistics.screening import (
    begins_with_first_half,
    effects,
    order_of,
    rounds_for,
    signs_of_rounds,
)


def test_two_factors_by_hand() -> None:
    """A makes the job twice as fast and B slower by a quarter, without noise."""
    signs = signs_of_rounds(2, 4)
    assert signs == ((1, 1), (1, -1), (1, 1), (1, -1))
    assert [begins_with_first_half(number, 2) for number in range(4)] == [True, True, False, False]
    a, b = math.log(2.0), math.log(0.8)
    found = effects(signs, [a + b, a - b, a + b, a - b], 0.05)
    assert [effect.ratio for effect in found] == pytest.approx([2.0, 0.8])
    assert found[0].bounds.low == pytest.approx(2.0)


def test_the_width_by_hand() -> None:
    """One factor, two rounds: mean 0.1, deviation 0.1 * sqrt(2), 1 degree: 6.3138 at 5 %."""
    (found,) = effects([(1,), (1,)], [0.0, 0.2], 0.05)
    assert found.ratio == pytest.approx(math.exp(0.1))
    assert found.bounds.low == pytest.approx(math.exp(0.1 - 6.3138 * 0.1), rel=1e-4)


def test_numbers_of_rounds() -> None:
    assert [order_of(n) for n in (1, 2, 3, 4, 5, 9)] == [2, 4, 4, 8, 8, 16]
    assert [rounds_for(n, 8) for n in (1, 2, 3, 4, 5, 6, 9)] == [8, 8, 8, 8, 8, 16, 16]
    assert [rounds_for(n, 9) for n in (3, 4)] == [12, 16]


@given(st.integers(1, 20), st.integers(1, 40))
def test_every_factor_is_in_and_out_of_the_first_half_beside_any(factors: int, wanted: int) -> None:
    rounds = rounds_for(factors, wanted)
    signs = signs_of_rounds(factors, rounds)
    assert set(signs[0]) == {1}
    for first in range(factors):
        for second in range(factors):
            together = sum(own[first] * own[second] for own in signs)
            assert together == (rounds if first == second else 0)


@given(st.integers(1, 20), st.integers(1, 40))
def test_a_drift_within_rounds_is_no_effect(factors: int, wanted: int) -> None:
    rounds = rounds_for(factors, wanted)
    signs = signs_of_rounds(factors, rounds)
    drift = [0.1 if begins_with_first_half(number, factors) else -0.1 for number in range(rounds)]
    found = effects(signs, drift, 0.05)
    assert all(effect.ratio == pytest.approx(1.0) for effect in found)


def screened(seed: int, true: tuple[float, ...], rounds: int, sigma: float) -> list[bool]:
    """Factors that are slower by 10 % error, of jobs that are noisy like ones over TCP."""
    draw = random.Random(seed)
    signs = signs_of_rounds(len(true), rounds)
    ratios = [
        sum(s * effect for s, effect in zip(own, true, strict=True))
        + draw.gauss(0.0, sigma)
        - draw.gauss(0.0, sigma)
        for own in signs
    ]
    found = effects(signs, ratios, 0.1 / len(true))
    return [effect.bounds.high < 1.0 for effect in found]


@pytest.mark.long
def test_error_rates() -> None:
    """In 2,000 screenings with an error of 10 % for all four factors together."""
    harmless = [any(screened(seed, (0.0,) * 4, 8, 0.05)) for seed in range(2000)]
    assert sum(harmless) / 2000 == pytest.approx(0.1, abs=0.025)
    costly = (0.0, 0.0, 0.02, -0.06)
    assert sum(screened(seed, costly, 16, 0.05)[3] for seed in range(2000)) > 0.85 * 2000
    assert sum(screened(seed, costly, 8, 0.05)[3] for seed in range(2000)) > 0.4 * 2000
