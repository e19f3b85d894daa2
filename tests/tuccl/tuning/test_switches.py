"""Keys that are added where NCCL's own choice changes between two sizes of a ladder."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tuccl.search.trials.config import Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.tuning.switches import added_line, keys_near_switches, most_added, most_keys_added

SHAPE = Shape(8, 1, 8)
RING, LL, SIMPLE = NcclAlgorithm.RING, NcclProtocol.LL, NcclProtocol.SIMPLE
KILO, MEGA = 1 << 10, 1 << 20


def ladder(*sizes: int, operation: Collective = Collective.ALL_REDUCE) -> list[Task]:
    return [Task(operation, size, SHAPE) for size in sizes]


class Costs:
    """LL is estimated cheaper below each switch, and Simple above it, in turn."""

    def __init__(self, *switches: int) -> None:
        self.switches = switches
        self.asked: list[int] = []

    def __call__(self, task: Task) -> CostTable:
        self.asked.append(task.size_bytes)
        is_simple = sum(task.size_bytes >= at for at in self.switches) % 2
        return CostTable(((RING, LL, 1.0 + is_simple), (RING, SIMPLE, 1.5)))


def test_both_sides_of_a_switch_are_added() -> None:
    costs = Costs(700 * KILO)
    found = keys_near_switches(ladder(256 * KILO, MEGA, 4 * MEGA), costs, None)
    # Sixteenths of an octave above 512K are 32K apart.
    assert {task.size_bytes for task in found} == {672 * KILO, 704 * KILO}
    change = "from ring LL to ring Simple between 672K and 704K"
    assert set(found.values()) == {change}
    line = f"sizes added where NCCL's own choice changes: all_reduce {change}"
    assert added_line(found.items()) == line
    # Three sizes of the ladder, and 31 between two of them in five halvings.
    assert len(costs.asked) == 3 + 5


@pytest.mark.parametrize(
    ("at_kilo", "added"), [(256, []), (257, [272]), (280, [288]), (310, [304, 320]), (1000, [992])]
)
def test_a_size_of_the_ladder_stands_for_the_side_that_it_is_near(
    at_kilo: int, added: list[int]
) -> None:
    found = keys_near_switches(ladder(256 * KILO, MEGA), Costs(at_kilo * KILO), None)
    assert [task.size_bytes // KILO for task in found] == added


def test_without_a_switch_or_an_answer_nothing_is_added() -> None:
    tasks = ladder(KILO, 4 * KILO, 16 * KILO)
    assert keys_near_switches(tasks, Costs(), None) == {}
    assert keys_near_switches(tasks, lambda _: None, None) == {}
    unequal = CostTable(((RING, LL, None), (RING, SIMPLE, 1.0)))  # Ranks have different ones.
    assert keys_near_switches(tasks, lambda _: unequal, None) == {}
    assert keys_near_switches(ladder(MEGA), Costs(700 * KILO), None) == {}


def test_a_quarter_of_a_ladder_is_added_those_farthest_from_its_sizes_first() -> None:
    tasks = ladder(*(KILO << 2 * step for step in range(11)))
    # 2K is an octave from 1K and 4K, 5K a third of one from 4K, 100K two thirds of one from 64K.
    found = keys_near_switches(tasks, Costs(2 * KILO, 5 * KILO, 100 * KILO), None)
    assert most_added(len(tasks)) == most_keys_added(tasks, None) == 2
    assert most_keys_added(tasks, 11 * 5.0 + 6.0) == 1
    assert most_keys_added(tasks, 11 * 5.0 - 6.0) == 0
    assert sorted(task.size_bytes for task in found) == [1984, 2 * KILO]


def test_a_budget_leaves_each_key_five_seconds() -> None:
    tasks = ladder(256 * KILO, MEGA) + ladder(256 * KILO, MEGA, operation=Collective.ALL_GATHER)
    costs = Costs(700 * KILO)
    assert len(keys_near_switches(tasks, costs, 40.0)) == 4
    assert {task.operation for task in keys_near_switches(tasks, costs, 39.0)} == {
        Collective.ALL_REDUCE
    }
    assert keys_near_switches(tasks, costs, 25.0) == {}
    assert not keys_near_switches(tasks, Costs(), 20.0)


@given(
    st.lists(st.integers(10, 30), min_size=2, max_size=9, unique=True),
    st.lists(st.integers(KILO, 1 << 30), max_size=5),
)
def test_each_added_key_is_beside_a_switch_of_its_ladder(
    exponents: list[int], switches: list[int]
) -> None:
    tasks, costs = ladder(*(1 << e for e in sorted(exponents))), Costs(*switches)
    found = keys_near_switches(tasks, costs, None)
    assert len(found) <= most_added(len(tasks))
    assert not found.keys() & set(tasks)
    for task in found:
        assert any(task.size_bytes / 1.07 <= at <= task.size_bytes * 1.07 for at in switches)
    for small, large in pairwise(tasks):
        between = [at for at in switches if small.size_bytes < at <= large.size_bytes]
        inside = [t for t in found if small.size_bytes < t.size_bytes < large.size_bytes]
        assert len(inside) <= (2 if len(between) % 2 else 0)
