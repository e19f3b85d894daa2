"""The computation beside the calls of a key, hand-worked."""

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Computation
from tuccl.workloads.step_calls import KeyCalls, SizeCalls, StepCalls

NODE = Shape(8, 1, 8)


def key(*sizes: SizeCalls, at: int = 2000) -> KeyCalls:
    return KeyCalls(Task(Collective.ALL_REDUCE, at, NODE), sizes)


def beside(size_bytes: int, calls: float, computation_us: float | None) -> SizeCalls:
    return SizeCalls(size_bytes, calls, computation_us=computation_us)


def test_a_key_of_one_size_has_its_computation() -> None:
    found = key(beside(2000, 3.0, 70.0)).computation
    assert found == Computation(Collective.ALL_REDUCE, NODE, 2000, 70.0)


def test_other_sizes_count_in_proportion_to_their_bytes() -> None:
    # 2 x 10 us and 1 x 70 us beside 2 x 1000 + 2500 bytes: 0.02 us a byte.
    found = key(beside(1000, 2.0, 10.0), beside(2500, 1.0, 70.0)).computation
    assert found is not None
    assert found.time_us == pytest.approx(40.0)


def test_calls_whose_computation_is_unknown_do_not_count() -> None:
    found = key(beside(4000, 1.0, None), beside(1000, 1.0, 10.0)).computation
    assert found is not None
    assert found.time_us == pytest.approx(20.0)
    none = key(beside(1000, 1.0, 0.0), beside(1000, 1.0, 10.0)).computation
    assert none is not None
    assert none.time_us == pytest.approx(10.0), "without computation is known"


@pytest.mark.parametrize("time_us", [None, 0.0])
def test_without_computation_a_key_is_timed_alone(time_us: float | None) -> None:
    made = key(beside(2000, 1.0, time_us))
    assert StepCalls((made,), (), "digest", 1.0).computations == ()


def test_a_key_that_had_no_computation_is_listed_beside_one_that_had() -> None:
    """Else its calls would be timed beside the other's (`Timing.computation_us`)."""
    none, some = key(beside(2000, 1.0, 0.0)), key(beside(8000, 1.0, 70.0), at=8000)
    unknown = key(beside(500, 1.0, None), at=500)
    found = StepCalls((unknown, none, some), (), "digest", 1.0).computations
    assert [(each.size_bytes, each.time_us) for each in found] == [(2000, 0.0), (8000, 70.0)]


def test_calls_of_one_size_have_their_mean() -> None:
    both = beside(1000, 3.0, 10.0).with_more(beside(1000, 1.0, 50.0))
    assert both.computation_us == pytest.approx(20.0)
    assert both.with_more(beside(1000, 1.0, None)).computation_us is None
