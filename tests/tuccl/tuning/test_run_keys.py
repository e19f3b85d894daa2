"""The keys that decide the process profile."""

from dataclasses import replace

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.quantities import size_ladder
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import NamedShape, ShapeName
from tuccl.tuning.run_keys import keys_of, representative, seed_of, smaller_neighbour
from tuccl.tuning.settings import RunSettings

SHAPE = Shape(4, 1, 4)
OPERATIONS = (
    Collective.ALL_GATHER,
    Collective.ALL_REDUCE,
    Collective.ALLTOALL,
    Collective.REDUCE_SCATTER,
)


def raced(operations: int, step: int) -> set[int]:
    """Sizes of the first operation that take part in the race."""
    sizes = size_ladder(1 << 10, 1 << 30, step)
    tasks = keys_of(RunSettings(OPERATIONS[:operations], sizes), SHAPE)
    return {task.size_bytes for task in representative(tasks) if task.operation is OPERATIONS[0]}


def test_a_further_operation_leaves_the_sizes_of_the_rest() -> None:
    assert raced(1, 4) == raced(3, 4) == raced(4, 4) == set(size_ladder(1 << 10, 1 << 30, 4))


def test_of_many_sizes_of_several_operations_every_second_is_enough() -> None:
    assert len(raced(1, 2)) == 21
    assert raced(3, 2) == raced(4, 2) == set(size_ladder(1 << 10, 1 << 30, 4))


NODE = Shape(2, 1, 2)
ONE_SHAPE = RunSettings((Collective.ALL_REDUCE,), (1024, 4096))
SEVERAL = replace(
    ONE_SHAPE, shapes=(NamedShape(ShapeName.WHOLE, SHAPE), NamedShape(ShapeName.NODE, NODE, 2.0))
)


def test_keys_are_of_each_shape_and_neighbours_of_the_same() -> None:
    assert {task.shape for task in keys_of(ONE_SHAPE, SHAPE)} == {SHAPE}
    tasks = keys_of(SEVERAL, SHAPE)
    assert [task.shape for task in tasks] == [SHAPE, SHAPE, NODE, NODE]
    assert smaller_neighbour(tasks[3], tasks) == tasks[2]
    assert smaller_neighbour(tasks[2], tasks[:2]) is None


def test_names_and_seeds_tell_shapes_apart_where_a_run_has_several() -> None:
    whole, node = Task(Collective.ALL_REDUCE, 1024, SHAPE), Task(Collective.ALL_REDUCE, 1024, NODE)
    assert (whole.full_name, node.full_name) == ("all_reduce-1024@4x1", "all_reduce-1024@2x1")
    assert seed_of(SEVERAL, "race", whole) != seed_of(SEVERAL, "race", node)
    assert seed_of(ONE_SHAPE, "race", whole) == seed_of(ONE_SHAPE, "race", node)


def test_a_shapes_weight_counts_for_its_keys_beside_that_of_the_operation() -> None:
    settings = replace(SEVERAL, weights=((Collective.ALL_REDUCE, 3.0),))
    whole, node = (Task(Collective.ALL_REDUCE, 1024, shape) for shape in (SHAPE, NODE))
    assert (settings.weight(whole), settings.weight(node)) == (3.0, 6.0)
    assert (settings.shape_weight(SHAPE), settings.shape_weight(NODE)) == (1.0, 2.0)


def test_added_sizes_are_keys_of_their_own_ladder_and_do_not_make_the_race_longer() -> None:
    sizes = size_ladder(1 << 10, 1 << 30, 4)
    near = Task(OPERATIONS[0], 700 << 10, SHAPE)
    plain = RunSettings(OPERATIONS, sizes)
    tasks = keys_of(replace(plain, added=((near, "why"),)), SHAPE)
    assert [task for task in tasks if task not in keys_of(plain, SHAPE)] == [near]
    of_ladder = [task.size_bytes for task in tasks if task.operation is near.operation]
    assert of_ladder == sorted({*sizes, 700 << 10})
    # 44 keys of 11 sizes each race as a whole; of 21 sizes each every second one does.
    assert representative(tasks, added={near}) == tasks
    many = RunSettings(OPERATIONS, size_ladder(1 << 10, 1 << 30, 2), added=((near, "why"),))
    raced_too = representative(keys_of(many, SHAPE), added={near})
    assert near in raced_too
    assert len(raced_too) == 4 * 11 + 1


def test_at_an_added_size_the_schedules_of_both_sizes_beside_it_are_tried() -> None:
    own = RunSettings(OPERATIONS, (1 << 18, 1 << 20, 1 << 22))
    assert own.sizes_tried_like(1 << 20) == (1 << 20,)
    assert own.sizes_tried_like(700 << 10) == (1 << 18, 1 << 20)
