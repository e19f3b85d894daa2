from statistics import NormalDist

import numpy as np
import pytest

from tuccl.search.statistics.looks import Looks, bonferroni, false_discovery_level


def test_an_error_is_divided_among_comparisons() -> None:
    assert bonferroni(0.05, 10) == pytest.approx(0.005)


def test_one_look_has_all_of_the_error_and_a_first_one_its_share() -> None:
    assert Looks((8,), power=2.0).error_at(8, 0.01, last=True) == pytest.approx(0.01, rel=1e-3)
    # (3 / 6)^2 of it.
    assert Looks((3, 6), power=2.0).error_at(3, 0.04, last=False) == pytest.approx(0.01, rel=1e-3)
    assert Looks((3, 6), power=2.0).error_at(3, 0.04, last=True) == pytest.approx(0.04, rel=1e-3)


@pytest.mark.parametrize("counts", [(3, 5), (3, 5, 8, 12), (3, 5, 7)])
def test_all_looks_together_have_the_error_that_is_claimed(counts: tuple[int, ...]) -> None:
    """The last look of (3, 5, 7) is one where a budget ends; 12 were planned."""
    looks = Looks((3, 5) if counts == (3, 5) else (3, 5, 8, 12), power=1.0)
    sums = np.random.default_rng(1).standard_normal((200_000, counts[-1])).cumsum(axis=1)
    crossed = np.zeros(len(sums), dtype=bool)
    levels = [looks.error_at(count, 0.05, last=count == counts[-1]) for count in counts]
    for count, level in zip(counts, levels, strict=True):
        crossed |= sums[:, count - 1] > NormalDist().inv_cdf(1.0 - level) * count**0.5
    assert crossed.mean() == pytest.approx(0.05, abs=0.002)
    assert sum(levels) > 0.06, "more than parts of the error"


def test_the_false_discovery_rule_by_hand() -> None:
    # Benjamini and Hochberg 1995, 3.2: 15 values, 5 %; their rule proves 4, Bonferroni's 3.
    values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240,
              0.4262, 0.5719, 0.6528, 0.7590, 1.0]  # fmt: skip

    def proved(error: float) -> int:
        return sum(value <= error for value in values)

    level = false_discovery_level(0.05, 15, proved)
    assert level == pytest.approx(4 * 0.05 / 15)
    assert proved(level) == 4
    assert proved(bonferroni(0.05, 15)) == 3


def test_where_nothing_is_proved_the_strictest_level_is_left() -> None:
    assert false_discovery_level(0.05, 10, lambda _: 0) == pytest.approx(0.005)
    assert false_discovery_level(0.05, 10, lambda _: 10) == pytest.approx(0.05)
