from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.table import Operation, Shape
from tuccl.backends.protocol import Measured
from tuccl.breakpoints import border, located_ranges
from tuccl.errors import ConfigurationFailedError
from tuccl.search.config import STOCK, Config, Task

SHAPE = Shape(4, 1, 4)
LOW_LATENCY, BANDWIDTH = Config("ring", "LL", 4), Config("ring", "Simple", 4)


def key(size_bytes: int) -> Task:
    return Task(Operation.ALL_GATHER, size_bytes, SHAPE)


class Crossing:
    """LL takes 1 us and 1 us more per `at` bytes, Simple 2 us: they cross there."""

    def __init__(self, at_bytes: int) -> None:
        self.at_bytes = at_bytes
        self.sizes: set[int] = set()

    def __call__(self, task: Task, config: Config, repeats: int) -> Measured:
        self.sizes.add(task.size_bytes)
        time_us = 1.0 + task.size_bytes / self.at_bytes if config == LOW_LATENCY else 2.0
        return Measured((time_us,) * repeats, 0.0)


@pytest.mark.parametrize(
    ("at_bytes", "found"),
    [(70_000, 71_434), (80_000, 84_984), (100_000, 101_060), (125_000, 120_186)],
)
def test_a_crossing_is_found_to_an_eighth_of_a_step(at_bytes: int, found: int) -> None:
    machine = Crossing(at_bytes)
    # A step of two has its quarters at 65536 * 2 ** (0, 1/4, 1/2, 3/4, 1).
    end = border(key(1 << 16), key(1 << 17), LOW_LATENCY, BANDWIDTH, machine)
    assert end == pytest.approx(found, rel=1e-3)
    assert all(size % 64 == 0 for size in machine.sizes)
    assert len(machine.sizes) == 2


def test_where_neighbours_agree_nothing_is_measured() -> None:
    machine = Crossing(1)
    assert border(key(1 << 16), key(1 << 18), STOCK, STOCK, machine) == 1 << 17
    assert not machine.sizes


def test_where_nothing_can_be_measured_the_middle_stays() -> None:
    def measure(task: Task, config: Config, repeats: int) -> Measured:
        raise ConfigurationFailedError("not in the record")

    assert border(key(1 << 16), key(1 << 18), LOW_LATENCY, BANDWIDTH, measure) == 1 << 17


@given(st.sets(st.integers(4, 34), min_size=1, max_size=8), st.integers(64, 1 << 34))
def test_ranges_hold_their_sizes_and_meet(exponents: set[int], at_bytes: int) -> None:
    tasks = [key(1 << exponent) for exponent in sorted(exponents)]
    winners = {task: LOW_LATENCY if task.size_bytes < at_bytes else BANDWIDTH for task in tasks}
    ranges = located_ranges(winners, Crossing(at_bytes))
    for task in tasks:
        assert ranges[task][0] <= task.size_bytes <= ranges[task][1]
    for small, large in pairwise(tasks):
        assert ranges[small][1] + 1 == ranges[large][0]
