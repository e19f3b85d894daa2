"""The few keys that a watch measures reach all operations and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.table import Entry, SeenPlacement, Shape
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.bench.shipped_tables import (
    M,
    all_gather_entry,
    placed_pairs,
    ship_entries,
)
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.shipping.bench.contenders import ShippedTable, read_shipped_table
from tuccl.shipping.watching.spot_keys import MOST_KEYS, spot_keys
from tuccl.shipping.watching.spot_verdicts import promise_of

TableOf = Callable[..., ShippedTable]
FOUR, TWO = Shape(4, 1, 4), Shape(2, 1, 2)
SIZES = [1024 << (2 * number) for number in range(11)]
"""1K to 1G."""


def entry(operation: Collective, size_bytes: int, gain: float, shape: Shape = FOUR) -> Entry:
    made = all_gather_entry(8, gain, size_bytes, shape)
    return replace(made, key=replace(made.key, operation=operation))


@pytest.fixture
def table_of(stand_ins: StandIns, tmp_path: Path) -> TableOf:
    def make(*entries: Entry, placements: Sequence[SeenPlacement] = ()) -> ShippedTable:
        ordered = sorted(entries, key=lambda e: (e.key.shape, e.key.operation, e.key.min_bytes))
        place = ship_entries(tmp_path / "t", stand_ins, *ordered, placements=placements)
        return read_shipped_table(place, "t")

    return make


def test_three_operations_have_a_small_a_middle_and_a_large_key_each(table_of: TableOf) -> None:
    operations = (Collective.ALL_GATHER, Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
    gains = {size: 1.1 + 0.01 * number for number, size in enumerate(SIZES)}
    table = table_of(*(entry(op, size, gains[size]) for op in operations for size in SIZES))
    tasks = spot_keys(table, FOUR)
    assert len(tasks) == MOST_KEYS
    for operation in operations:
        sizes = [task.size_bytes for task in tasks if task.operation is operation]
        assert sizes == [64 << 10, 4 << 20, 256 << 20], "the best of each band, none above 256M"


def test_many_operations_share_the_bands(table_of: TableOf) -> None:
    operations = COLLECTIVES[:6]
    sizes = (1024, 1 << 20, 64 << 20)
    table = table_of(*(entry(op, size, 1.5) for op in operations for size in sizes))
    tasks = spot_keys(table, FOUR)
    assert len(tasks) == MOST_KEYS
    assert {task.operation for task in tasks} == set(operations)
    assert {task.size_bytes for task in tasks} == set(sizes)


def test_few_entries_are_all_measured(table_of: TableOf) -> None:
    entries = [entry(Collective.ALL_GATHER, size, 1.2) for size in SIZES[:4]]
    assert [task.size_bytes for task in spot_keys(table_of(*entries), FOUR)] == SIZES[:4]


def test_the_largest_communicator_of_this_host_is_measured(table_of: TableOf) -> None:
    table = table_of(
        entry(Collective.ALL_GATHER, 1024, 2.0, TWO),
        entry(Collective.ALL_GATHER, 1024, 1.2, FOUR),
        entry(Collective.ALL_GATHER, 1024, 3.0, Shape(16, 4, 4)),
    )
    assert [task.shape for task in spot_keys(table, FOUR)] == [FOUR]
    assert [task.shape for task in spot_keys(table, TWO)] == [TWO]
    assert spot_keys(table, Shape(3, 1, 3)) == ()


def test_communicators_with_entries_of_their_own_are_measured_apart(table_of: TableOf) -> None:
    """At the size without such an entry all neighbours have the promise of any pair."""
    shape_entry = entry(Collective.ALL_GATHER, 4 * M, 1.2, TWO)
    table = table_of(shape_entry, placements=placed_pairs((8,), (4,)))
    tasks = spot_keys(table, FOUR)
    neighbours, apart = (Placement(stride, (0, 1)) for stride in (1, 2))
    assert tasks == tuple(
        Task(Collective.ALL_GATHER, size, TWO, placement)
        for size, placement in ((2 * M, neighbours), (2 * M, apart), (4 * M, neighbours))
    )
    promises = [promise for task in tasks if (promise := promise_of(table, task))]
    assert [promise.stated.gain.ratio for promise in promises] == pytest.approx([1.5, 2.5, 1.2])
    assert promises[1].stated.placement == "gpu0 and gpu2"
    assert {task.placement for task in spot_keys(table, Shape(8, 1, 8))} == {ANYWHERE}


def test_a_host_of_several_that_are_alike_has_the_same_communicators(table_of: TableOf) -> None:
    two_hosts = [
        replace(own, timed=replace(own.timed, machine=Shape(8, 2, 4)))
        for own in placed_pairs((8,), (4,))
        if own.timed
    ]
    table = table_of(placements=two_hosts)
    assert [task.placement.stride for task in spot_keys(table, FOUR)] == [1, 2]
    all_neighbours = Task(Collective.ALL_GATHER, 2 * M, TWO)
    stated = table.stated(all_neighbours)
    assert stated is not None
    assert stated.gain.ratio == pytest.approx(1.5)
