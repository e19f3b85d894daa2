"""Time of collectives alone on their GPU, and beside computation: by hand, and tick by tick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.workloads.replays.uncovered import Span, covered_times_us, uncovered_times_us

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))),
    max_size=8,
)


def test_a_call_is_uncovered_where_nothing_else_runs() -> None:
    # Computation until 4 and from 7 on: 3 of the first call's 8 us, all of the second's.
    work = [(0.0, 4.0), (2.0, 3.0), (7.0, 12.0)]
    assert uncovered_times_us([(2.0, 10.0), (20.0, 25.0)], work) == pytest.approx([3.0, 5.0])
    assert uncovered_times_us([(1.0, 3.0)], work) == [0.0]
    assert uncovered_times_us([], work) == []


def test_a_call_is_covered_where_anything_else_runs() -> None:
    # Of the first call's 8 us computation covers 2 to 4 and 7 to 10; overlapping work counts once.
    work = [(0.0, 4.0), (2.0, 3.0), (7.0, 12.0)]
    assert covered_times_us([(2.0, 10.0), (20.0, 25.0)], work) == pytest.approx([5.0, 0.0])
    assert covered_times_us([(2.0, 10.0), (3.0, 8.0)], work) == pytest.approx([5.0, 2.0])


def test_calls_that_wait_at_the_same_time_divide_it() -> None:
    assert uncovered_times_us([(0.0, 6.0), (2.0, 4.0)], []) == pytest.approx([5.0, 1.0])


@given(SPANS, SPANS)
def test_the_sum_is_the_time_of_calls_alone(calls: list[Span], work: list[Span]) -> None:
    def runs(spans: list[Span], tick: int) -> int:
        return sum(begin <= tick < end for begin, end in spans)

    alone = [tick for tick in range(60) if runs(calls, tick) and not runs(work, tick)]
    found = uncovered_times_us(calls, work)
    assert sum(found) == pytest.approx(len(alone))
    for call, uncovered_us in zip(calls, found, strict=True):
        own = [tick for tick in alone if call[0] <= tick < call[1]]
        assert uncovered_us == pytest.approx(sum(1.0 / runs(calls, tick) for tick in own))
    for call, covered_us in zip(calls, covered_times_us(calls, work), strict=True):
        beside = [tick for tick in range(60) if call[0] <= tick < call[1] and runs(work, tick)]
        assert covered_us == pytest.approx(len(beside))
