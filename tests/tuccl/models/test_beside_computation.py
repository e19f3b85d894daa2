"""A call beside computation: hand-worked, and what no time can be below."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.models.figures import time_beside_us

TIMES = st.floats(1.0, 1e6)


def test_computation_that_ends_first_costs_the_call_nothing() -> None:
    # 25 of 100 multiprocessors: in 200 us the others do 150 us of the computation.
    assert time_beside_us(200.0, 25, 100.0, 100) == 200.0
    assert time_beside_us(200.0, 25, 150.0, 100) == 200.0


def test_computation_that_lasts_longer_loses_what_the_call_takes() -> None:
    # 250 us of computation lose a quarter of 200 us.
    assert time_beside_us(200.0, 25, 250.0, 100) == pytest.approx(300.0)


def test_a_faster_call_with_more_channels_may_end_later() -> None:
    few, many = (200.0, 4), (150.0, 32)
    assert time_beside_us(*many, 100.0, 132) < time_beside_us(*few, 100.0, 132)
    assert time_beside_us(*many, 400.0, 132) > time_beside_us(*few, 400.0, 132)


def test_more_blocks_than_multiprocessors_stop_the_computation() -> None:
    assert time_beside_us(100.0, 400, 50.0, 100) == 150.0


def test_without_computation_a_call_takes_its_time() -> None:
    assert time_beside_us(200.0, 25, 0.0, 100) == time_beside_us(200.0, 400, 0.0, 100) == 200.0


@given(TIMES, st.integers(1, 200), TIMES)
def test_both_end_no_sooner_than_each_and_no_later_than_one_after_another(
    alone_us: float, blocks: int, computation_us: float
) -> None:
    found = time_beside_us(alone_us, blocks, computation_us, 132)
    assert max(alone_us, computation_us) <= found <= (alone_us + computation_us) * (1 + 1e-9)
