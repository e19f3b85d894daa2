"""The time of a step's calls, each by its own size."""

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import Task
from tuccl.workloads.step_calls import KeyCalls, SizeCalls, times_per_step

SHAPE = Shape(4, 1, 4)
SMALL, LARGE = (Task(Collective.ALL_REDUCE, size, SHAPE) for size in (1024, 16384))


def key(task: Task, *sizes: tuple[int, float]) -> KeyCalls:
    return KeyCalls(task, tuple(SizeCalls(*each) for each in sizes))


def test_calls_of_the_keys_own_size_take_its_time() -> None:
    keys = [key(SMALL, (1024, 3.0)), key(LARGE, (16384, 0.5))]
    assert times_per_step(keys, {SMALL: 10.0, LARGE: 40.0}) == {
        SMALL: {1024: pytest.approx(30.0)},
        LARGE: {16384: pytest.approx(20.0)},
    }


def test_a_size_between_keys_lies_between_them_on_logarithmic_scales() -> None:
    keys = [key(SMALL, (1024, 1.0), (4096, 2.0)), key(LARGE, (16384, 1.0))]
    times = times_per_step(keys, {SMALL: 10.0, LARGE: 40.0})
    assert times[SMALL][4096] == pytest.approx(2 * 20.0)


def test_sizes_beyond_the_keys_follow_the_last_slope_from_constant_to_proportional() -> None:
    keys = [key(SMALL, (256, 1.0)), key(LARGE, (65536, 1.0))]
    rising = times_per_step(keys, {SMALL: 10.0, LARGE: 40.0})
    assert (rising[SMALL][256], rising[LARGE][65536]) == pytest.approx((5.0, 80.0))
    steep = times_per_step(keys, {SMALL: 1.0, LARGE: 400.0})
    assert steep[LARGE][65536] == pytest.approx(1600.0)
    falling = times_per_step(keys, {SMALL: 40.0, LARGE: 10.0})
    assert (falling[SMALL][256], falling[LARGE][65536]) == pytest.approx((40.0, 10.0))


def test_a_lone_key_gives_its_own_time() -> None:
    assert times_per_step([key(SMALL, (2048, 2.0))], {SMALL: 10.0}) == {
        SMALL: {2048: pytest.approx(20.0)}
    }


def test_operations_and_shapes_have_curves_of_their_own() -> None:
    node = Task(Collective.ALL_REDUCE, 16384, Shape(2, 1, 2))
    gather = Task(Collective.ALL_GATHER, 16384, SHAPE)
    keys = [key(SMALL, (2048, 1.0)), key(node, (2048, 1.0)), key(gather, (2048, 1.0))]
    times = times_per_step(keys, {SMALL: 10.0, node: 20.0, gather: 30.0})
    assert [times[task][2048] for task in (SMALL, node, gather)] == pytest.approx([10, 20, 30])
