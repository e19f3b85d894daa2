from dataclasses import replace
from math import inf, nan

import pytest

from lookup_tables.provenance import Provenance
from lookup_tables.table import Operation, Shape
from tests.tuccl.measuring.records.small_record import (
    FAST,
    HUNG,
    SIZES,
    SLOW,
    machine,
    rows,
    small_record,
)
from tuccl.measuring.records.record import Request, Row, make_record
from tuccl.measuring.records.recorded_run import RecordedRun
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.timing import Timing

SHAPE = Shape(4, 1, 4)
MADE = Provenance("nccl")


def made(changed: list[Row]) -> None:
    make_record(machine(), SHAPE, MADE, Timing(), changed)


@pytest.mark.parametrize(
    ("size_bytes", "calls"),
    [(1, 20), (1 << 20, 20), ((1 << 20) + 1, 5), (64 << 20, 5), ((64 << 20) + 1, 2), (1 << 40, 2)],
)
def test_a_launch_has_fewer_calls_where_they_are_long(size_bytes: int, calls: int) -> None:
    assert Timing().calls(size_bytes) == calls


def test_a_record_knows_its_tasks_and_their_configurations() -> None:
    record = small_record()
    assert record.tasks == tuple(Task(Operation.ALL_REDUCE, size, SHAPE) for size in SIZES)
    assert record.configs(record.tasks[0]) == tuple(sorted([STOCK, FAST, SLOW, HUNG]))
    assert record.row(record.tasks[0], Config("tree", "LL")) is None
    other_shape = Task(Operation.ALL_REDUCE, SIZES[0], Shape(8, 2, 4))
    assert record.configs(other_shape) == ()


def test_sizes_with_nothing_but_stock_are_no_tasks() -> None:
    stock = Row(Task(Operation.BROADCAST, 64, SHAPE), STOCK, (1.0,), 0.0)
    record = make_record(machine(), SHAPE, MADE, Timing(), [*rows(), stock])
    assert {task.operation for task in record.tasks} == {Operation.ALL_REDUCE}


def test_rows_come_in_order_whatever_order_they_are_given_in() -> None:
    first = make_record(machine(), SHAPE, MADE, Timing(), rows())
    second = make_record(machine(), SHAPE, MADE, Timing(), rows()[::-1])
    assert first == second


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples_us": (8.0, nan)}, "a sample of nan us is no time"),
        ({"samples_us": (inf,)}, "a sample of inf us"),
        ({"samples_us": (-1.0,)}, "a sample of -1.0 us"),
        ({"samples_us": (0.0,)}, "a sample of 0.0 us"),
        ({"seconds": nan}, "nan seconds is no cost"),
        ({"seconds": -1.0}, "-1.0 seconds"),
        ({"samples_us": ()}, "neither samples nor a reason"),
        ({"task": Task(Operation.ALL_REDUCE, 0, SHAPE)}, "0 is no size"),
        ({"task": Task(Operation.ALL_REDUCE, 1, Shape(4, 5, 4))}, "1 <= nodes <= ranks"),
        ({"failed_s": nan}, "nan seconds is no cost"),
        ({"requests": (Request(3, 3, inf, 0.0),)}, "inf seconds is no cost"),
        ({"requests": (Request(3, 0, 1.0, 0.0),)}, "0 samples of 3 after 0"),
        ({"requests": (Request(3, 4, 1.0, 0.0),)}, "4 samples of 3 after 0"),
        ({"requests": (Request(2, 2, 1.0, 0.0),)}, "2 of 3 samples asked"),
        ({"config": replace(FAST, nthreads=-64)}, "-64 is no count"),
        ({"config": replace(FAST, algorithm="spiral")}, "no algorithm 'spiral'"),
        ({"config": replace(FAST, protocol="LL256")}, "no protocol 'LL256'"),
        ({"config": Config("default", "LL")}, "NCCL's own choice has no protocol"),
        ({"config": SLOW}, "stands there twice"),
    ],
)
def test_what_cannot_have_been_measured_is_named(change: dict[str, object], said: str) -> None:
    changed = [
        replace(row, **change)  # type: ignore[arg-type]
        if (row.config, row.size_bytes) == (FAST, SIZES[0])
        else row
        for row in rows()
    ]
    with pytest.raises(ValueError, match="all_reduce") as caught:
        made(changed)
    assert said in str(caught.value)


def test_the_keys_of_a_known_run_are_its_tasks_whatever_was_tried_on_them() -> None:
    key = Task(Operation.BROADCAST, 64, SHAPE)
    stock = Row(key, STOCK, (1.0,), 0.0)
    record = make_record(
        machine(), SHAPE, MADE, Timing(), [*rows(), stock], of_run=RecordedRun(keys=(key,))
    )
    assert record.tasks == (key,), "sizes between keys were timed for borders alone"
