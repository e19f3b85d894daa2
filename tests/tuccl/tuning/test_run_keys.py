"""The keys that decide the process profile."""

from lookup_tables.table import Operation, Shape
from tuccl.tuning.run_keys import keys_of, representative
from tuccl.tuning.settings import RunSettings
from tuccl.words.sizes import size_ladder

SHAPE = Shape(4, 1, 4)
OPERATIONS = (
    Operation.ALL_GATHER,
    Operation.ALL_REDUCE,
    Operation.ALLTOALL,
    Operation.REDUCE_SCATTER,
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
