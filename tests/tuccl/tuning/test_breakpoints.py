from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.lookup import MAX_SIZE_BYTES
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.tuning.breakpoints import Borders, seconds, seconds_again

SHAPE = Shape(4, 1, 4)
LOW_LATENCY, BANDWIDTH = Config("ring", "LL", 4), Config("ring", "Simple", 4)


def key(size_bytes: int) -> Task:
    return Task(Collective.ALL_GATHER, size_bytes, SHAPE)


class Crossing:
    """LL takes 1 us and 1 us more per `at` bytes, Simple 2 us: they cross there. NCCL takes 3."""

    def __init__(self, at_bytes: int) -> None:
        self.at_bytes = at_bytes
        self.sizes: set[int] = set()

    def __call__(self, task: Task, config: Config, count: int) -> tuple[float, ...]:
        self.sizes.add(task.size_bytes)
        time_us = 1.0 + task.size_bytes / self.at_bytes if config == LOW_LATENCY else 2.0
        time_us *= 1.5 if config == STOCK else 1.0
        return (time_us,) * count


@pytest.mark.parametrize(
    ("at_bytes", "found"),
    [(70_000, 71_434), (80_000, 84_984), (100_000, 101_060), (125_000, 120_186)],
)
def test_a_crossing_is_found_to_an_eighth_of_a_step(at_bytes: int, found: int) -> None:
    machine = Crossing(at_bytes)
    # A step of two has its quarters at 65536 * 2 ** (0, 1/4, 1/2, 3/4, 1).
    borders = Borders(machine)
    end, start = borders.borders(key(1 << 16), key(1 << 17), LOW_LATENCY, BANDWIDTH)
    assert start == end + 1
    assert end == pytest.approx(found, rel=1e-3)
    assert all(size % 64 == 0 for size in machine.sizes)
    assert len(machine.sizes) == 2


def test_borders_that_are_located_again_cost_as_much_as_before_or_a_quarter_of_the_most() -> None:
    assert seconds(0.8) == pytest.approx(24.0)  # Two halvings of five turns of three calls.
    assert seconds_again(0.8, before_s=8.0) == pytest.approx(8.0)
    assert seconds_again(0.8, before_s=0.0) == pytest.approx(6.0)
    assert seconds_again(0.8, before_s=40.0) == pytest.approx(24.0)


def test_where_neighbours_agree_nothing_is_measured() -> None:
    machine = Crossing(1)
    agreed = Borders(machine).borders(key(1 << 16), key(1 << 18), STOCK, STOCK)
    assert agreed == (1 << 17, (1 << 17) + 1)
    assert not machine.sizes


def test_where_a_call_cannot_run_the_border_is_the_middle_and_is_not_tried_again() -> None:
    tried: list[Config] = []

    def fresh(task: Task, config: Config, count: int) -> tuple[float, ...]:
        tried.append(config)
        raise ConfigurationFailedError("not in the record")

    borders = Borders(fresh)
    for _ in range(2):
        found = borders.borders(key(1 << 16), key(1 << 18), LOW_LATENCY, BANDWIDTH)
        assert found == (1 << 17, (1 << 17) + 1)
    assert tried == [STOCK, LOW_LATENCY]


def test_a_changed_border_takes_fresh_samples_of_both_calls_and_others_are_kept() -> None:
    measured: list[tuple[int, Config]] = []
    slower = 1.0  # Factor of the current start.

    def fresh(task: Task, config: Config, count: int) -> tuple[float, ...]:
        measured.append((task.size_bytes, config))
        return (slower * {LOW_LATENCY: 1.0, STOCK: 1.1, BANDWIDTH: 2.0}[config],) * count

    borders = Borders(fresh)
    tasks = [key(1 << exponent) for exponent in (16, 18, 20)]
    winners = dict(zip(tasks, (LOW_LATENCY, BANDWIDTH, STOCK), strict=True))
    before = borders.ranges(winners)
    measured.clear()
    assert borders.ranges(winners) == before
    assert not measured
    slower = 0.5
    after = borders.ranges(winners | {tasks[1]: STOCK})
    compared = {config for size, config in measured if size < tasks[1].size_bytes}
    assert compared == {LOW_LATENCY, STOCK}
    assert not [size for size, _ in measured if size > tasks[1].size_bytes]
    # Twice as fast as the samples that LL had before, NCCL's own choice still loses by 10 %.
    assert after[tasks[0]][1] > 1 << 17


def in_between(task: Task, config: Config, count: int) -> tuple[float, ...]:
    """NCCL takes 1 us from 80,000 to 110,000 bytes and 4 elsewhere, LL and Simple cross there."""
    if config == STOCK:
        return (1.0 if 80_000 <= task.size_bytes <= 110_000 else 4.0,) * count
    return Crossing(92_000)(task, config, count)


def test_what_nccls_own_choice_does_faster_than_both_neighbours_is_left_to_it() -> None:
    small, large = key(1 << 16), key(1 << 17)
    # The middle goes to NCCL, and a halving of each side follows: 65536 * 2 ** (3/8, 5/8).
    end, start = Borders(in_between).borders(small, large, LOW_LATENCY, BANDWIDTH)
    assert end == pytest.approx(84_990, rel=1e-3)
    assert start == pytest.approx(101_070, rel=1e-3)
    ranges = Borders(in_between).ranges({small: LOW_LATENCY, large: BANDWIDTH})
    assert (ranges[small][1], ranges[large][0]) == (end, start)


def test_a_replay_that_lacks_nccls_own_choice_compares_the_winners_alone() -> None:
    machine = Crossing(100_000)

    def recorded(task: Task, config: Config, count: int) -> tuple[float, ...]:
        if config == STOCK:
            raise ConfigurationFailedError("not in the record")
        return machine(task, config, count)

    end, _ = Borders(recorded).borders(key(1 << 16), key(1 << 17), LOW_LATENCY, BANDWIDTH)
    assert end == pytest.approx(101_060, rel=1e-3)


@given(st.sets(st.integers(4, 34), min_size=1, max_size=8), st.integers(64, 1 << 34))
def test_ranges_hold_their_sizes_and_meet(exponents: set[int], at_bytes: int) -> None:
    tasks = [key(1 << exponent) for exponent in sorted(exponents)]
    winners = {task: LOW_LATENCY if task.size_bytes < at_bytes else BANDWIDTH for task in tasks}
    ranges = Borders(Crossing(at_bytes)).ranges(winners)
    for task in tasks:
        assert ranges[task][0] <= task.size_bytes <= ranges[task][1]
    for small, large in pairwise(tasks):
        assert ranges[small][1] + 1 == ranges[large][0]


def test_keys_that_leave_nothing_to_nccl_serve_every_size_without_a_gap() -> None:
    """Beside their winners NCCL's own choice is not even timed, and no reach ends a range."""
    timed: set[Config] = set()

    def fresh(task: Task, config: Config, count: int) -> tuple[float, ...]:
        timed.add(config)
        fast = (task.size_bytes < 200_000) == (config == LOW_LATENCY)
        return (1.0 if fast or config == STOCK else 2.0,) * count

    small, large = (Task(Collective.ALL_REDUCE, size, SHAPE) for size in (1 << 16, 1 << 20))
    reach = {task: (task.size_bytes, task.size_bytes) for task in (small, large)}
    winners = {small: LOW_LATENCY, large: BANDWIDTH}
    ranges = Borders(fresh, reach).ranges(winners, STOCK, lambda _: True)
    assert (ranges[small][0], ranges[large][1]) == (1, MAX_SIZE_BYTES)
    assert ranges[large][0] == ranges[small][1] + 1
    assert timed == {LOW_LATENCY, BANDWIDTH}
