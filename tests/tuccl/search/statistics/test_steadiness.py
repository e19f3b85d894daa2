import math

import numpy as np
import pytest

from tuccl.search.statistics.steadiness import between_starts, has_moved, is_unsteady


def test_the_median_key_says_whether_launches_are_steady() -> None:
    assert not is_unsteady([[10.0, 10.1], [10.0, 10.1], [10.0, 20.0]])
    assert is_unsteady([[10.0, 10.1], [10.0, 11.0], [10.0, 11.0]])


def test_the_median_key_says_whether_starts_differ() -> None:
    first = [[10.0], [10.0], [10.0]]
    assert not has_moved(first, [[10.1], [10.1], [20.0]])
    assert has_moved(first, [[10.1], [9.7], [10.3]])


def test_what_moves_all_keys_alike_says_nothing_of_a_ratio() -> None:
    first = [[10.0], [20.0], [30.0]]
    assert between_starts(first, [[11.0], [22.0], [33.0]]).error == pytest.approx(0.0, abs=1e-9)
    # Shifts of 0, 0.01 and 0.02: a standard deviation of 0.01 with 2 degrees.
    last = [[10.0], [20.0 * math.exp(0.01)], [30.0 * math.exp(0.02)]]
    found = between_starts(first, last)
    assert found.error == pytest.approx(0.01)
    assert found.degrees == 2


def test_a_single_key_is_off_by_what_it_moved() -> None:
    found = between_starts([[10.0]], [[10.0 * math.exp(0.03)]])
    assert found.error == pytest.approx(0.03)
    assert found.degrees == 1


def test_what_samples_explain_is_allowed_for_too() -> None:
    """Else it is 0 for every other shape whose starts are alike, and allows for nothing."""
    rng = np.random.default_rng(2)
    # The median of 9 samples and that of 3 differ by 0.01 * sqrt(pi / 2 * (1/9 + 1/3)) = 0.0084.
    for own, expected in ((0.0, 0.0084), (0.02, math.hypot(0.02 * math.sqrt(2.0), 0.0084))):
        shifts = np.exp(rng.normal(0.0, own, (2, 800)))
        first, last = (
            [list(shift * np.exp(rng.normal(0.0, 0.01, count))) for shift in of_start]
            for of_start, count in zip(shifts, (9, 3), strict=True)
        )
        # Two starts have the root of 2 times the deviation of one.
        assert between_starts(first, last).error == pytest.approx(expected, rel=0.15)
