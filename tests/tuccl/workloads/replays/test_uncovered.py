"""Time of collectives alone on their GPU: by hand, and against a GPU looked at tick by tick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.workloads.replays.uncovered import Span, uncovered_times_us

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
