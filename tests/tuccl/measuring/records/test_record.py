from dataclasses import replace
from math import inf, nan

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from tests.tuccl.measuring.records.small_record import (
    FAST,
    HUNG,
    SIZES,
    SLOW,
    machine,
    rows,
    small_record,
)
from tuccl.measuring.records.record import make_record
from tuccl.measuring.records.recorded_run import RecordedRun
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Answer, Recorded

SHAPE = Shape(4, 1, 4)
MADE = Provenance("nccl")


def made(changed: list[Recorded]) -> None:
    make_record(machine(), SHAPE, MADE, Timing(), changed)


@pytest.mark.parametrize(
    ("size_bytes", "calls"),
    [(1, 20), (1 << 20, 20), ((1 << 20) + 1, 5), (64 << 20, 5), ((64 << 20) + 1, 2), (1 << 40, 2)],
)
def test_a_launch_has_fewer_calls_where_they_are_long(size_bytes: int, calls: int) -> None:
    assert Timing().calls(size_bytes) == calls


def test_a_record_knows_its_tasks_and_their_configurations() -> None:
    record = small_record()
    assert record.tasks == tuple(Task(Collective.ALL_REDUCE, size, SHAPE) for size in SIZES)
    assert record.configs(record.tasks[0]) == tuple(sorted([STOCK, FAST, SLOW, HUNG]))
    assert record.row(record.tasks[0], Config("tree", "LL")) is None
    other_shape = Task(Collective.ALL_REDUCE, SIZES[0], Shape(8, 2, 4))
    assert record.configs(other_shape) == ()


def test_sizes_with_nothing_but_stock_are_no_tasks() -> None:
    stock = Recorded(Task(Collective.BROADCAST, 64, SHAPE), STOCK, (1.0,), unasked_s=0.0)
    record = make_record(machine(), SHAPE, MADE, Timing(), [*rows(), stock])
    assert {task.operation for task in record.tasks} == {Collective.ALL_REDUCE}


def test_rows_come_in_order_whatever_order_they_are_given_in() -> None:
    first = make_record(machine(), SHAPE, MADE, Timing(), rows())
    second = make_record(machine(), SHAPE, MADE, Timing(), rows()[::-1])
    assert first == second


@pytest.mark.parametrize(
    "change",
    [
        {"samples_us": (8.0, nan)},
        {"samples_us": (inf,)},
        {"samples_us": (-1.0,)},
        {"samples_us": (0.0,)},
        {"unasked_s": nan},
        {"unasked_s": -1.0},
        {"samples_us": ()},
        {"task": Task(Collective.ALL_REDUCE, 0, SHAPE)},
        {"task": Task(Collective.ALL_REDUCE, 1, Shape(4, 5, 4))},
        {"failed_s": nan},
        {"answers": (Answer(3, 3, inf, 0.0),)},
        {"answers": (Answer(3, 0, 1.0, 0.0),)},
        {"answers": (Answer(3, 4, 1.0, 0.0),)},
        {"answers": (Answer(2, 2, 1.0, 0.0),)},
        {"config": replace(FAST, nthreads=-64)},
        {"config": replace(FAST, algorithm="spiral")},
        {"config": replace(FAST, protocol="LL256")},
        {"config": Config("default", "LL")},
        {"config": SLOW},
    ],
)
def test_what_cannot_have_been_measured_is_named(change: dict[str, object]) -> None:
    changed = [
        replace(row, **change)  # type: ignore[arg-type]
        if (row.config, row.task.size_bytes) == (FAST, SIZES[0])
        else row
        for row in rows()
    ]
    with pytest.raises(ValueError, match="all_reduce"):
        made(changed)


def test_the_keys_of_a_known_run_are_its_tasks_whatever_was_tried_on_them() -> None:
    key = Task(Collective.BROADCAST, 64, SHAPE)
    stock = Recorded(key, STOCK, (1.0,), unasked_s=0.0)
    record = make_record(
        machine(), SHAPE, MADE, Timing(), [*rows(), stock], of_run=RecordedRun(keys=(key,))
    )
    assert record.tasks == (key,), "sizes between keys were timed for borders alone"
