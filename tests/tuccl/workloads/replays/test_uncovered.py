"""Time of collectives alone on their GPU, and beside computation: by hand, and tick by tick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.workloads.replays.uncovered import Span, computed_times_us, uncovered_times_us

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


def computed_us(calls: list[Span], taken: list[float], work: list[Span]) -> list[float]:
    return [beside_us for beside_us, _ in computed_times_us(calls, taken, work)]


def test_computation_is_beside_a_call_where_anything_else_runs() -> None:
    # Of the first call's 8 us it runs from 2 to 4 and from 7 to 10; overlapping work counts once.
    work = [(0.0, 4.0), (2.0, 3.0), (7.0, 12.0)]
    found = computed_us([(2.0, 10.0), (20.0, 25.0)], [0.0, 0.0], work)
    assert found == pytest.approx([5.0, 0.0])


def test_computation_has_the_multiprocessors_that_calls_leave() -> None:
    # A quarter is taken for 5 us; of the second case's 8 us two calls take three quarters for 4.
    assert computed_us([(0.0, 5.0)], [0.25], [(0.0, 9.0)]) == pytest.approx([3.75])
    both = computed_times_us([(0.0, 8.0), (4.0, 8.0)], [0.25, 0.5], [(0.0, 9.0)])
    assert both == [pytest.approx((3.0 + 1.0, 3.0 + 0.5)), pytest.approx((1.0, 0.5))]
    assert computed_us([(0.0, 5.0)], [2.0], [(0.0, 9.0)]) == [0.0], "more blocks than they are"


def test_calls_that_wait_at_the_same_time_divide_it() -> None:
    assert uncovered_times_us([(0.0, 6.0), (2.0, 4.0)], []) == pytest.approx([5.0, 1.0])


@pytest.mark.long
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
    computed = computed_times_us(calls, [0.0] * len(calls), work)
    for call, (beside_us, _) in zip(calls, computed, strict=True):
        beside = [tick for tick in range(60) if call[0] <= tick < call[1] and runs(work, tick)]
        assert beside_us == pytest.approx(len(beside))
    together = [tick for tick in range(60) if runs(calls, tick) and runs(work, tick)]
    assert sum(part_us for _, part_us in computed) == pytest.approx(len(together))
