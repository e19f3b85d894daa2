from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tuccl.decision import Comparison, Decision
from tuccl.results import explain_decision, size_ranges
from tuccl.search.config import Config
from tuccl.sizes import size_ladder


def test_ranges_meet_halfway_on_a_logarithmic_scale() -> None:
    assert size_ranges((1024, 4096, 16384)) == {
        1024: (512, 2048),
        4096: (2049, 8192),
        16384: (8193, 32768),
    }


def test_a_single_size_covers_itself_only() -> None:
    assert size_ranges((1000,)) == {1000: (1000, 1000)}


@given(st.integers(1, 1 << 20), st.integers(2, 64), st.integers(0, 12))
def test_ranges_hold_their_size_and_leave_neither_gap_nor_overlap(
    first: int, factor: int, steps: int
) -> None:
    ladder = size_ladder(first, first * factor**steps, factor)
    ranges = size_ranges(ladder)
    assert list(ranges) == list(ladder)
    assert all(low <= size <= high for size, (low, high) in ranges.items())
    for (_, high), (low, _) in pairwise(ranges.values()):
        assert low == high + 1


def comparison(ratio: float, lower_bound: float) -> Comparison:
    return Comparison(Config("ring", "LL", 4), 10.0, 10.0 * ratio, ratio, lower_bound, 15, 0.01)


def test_the_reason_names_what_runs_and_the_bound() -> None:
    won = Decision(comparison(1.2, 1.1), None, 12.0, 12.0, ())
    assert explain_decision(won) == (
        "ring LL ch4 takes 10.00 us where its reference takes 12.00 us: 1.200x, lower bound 1.100"
    )
    lost = Decision(None, None, 12.0, 12.0, (comparison(1.01, 0.99),))
    assert explain_decision(lost).startswith("NCCL's own choice stays: the best alternative, ring")
