"""One table against another, key by key."""

import math
from dataclasses import replace

import pytest

from lookup_tables.provenance import Provenance
from lookup_tables.table import Operation, Table
from tests.tuccl.shipping.bench.shipped_tables import TWO_RANKS, M, placed_pairs
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.evidence import Evidence
from tuccl.reports.table_difference import (
    Change,
    Promise,
    TunedCall,
    compare_tables,
    promises_of_entries,
)

SMALL, LARGE, HUGE = (TunedCall(FOUR_GPUS, Operation.ALL_REDUCE, size) for size in (1, 2, 3))
RING = Promise("ring LL", 4.0, 8.0, Provenance("nccl"))


def entries_of(table: Table, *, has_executor: bool) -> dict[int, Promise]:
    found = promises_of_entries(table, Evidence.MEASURED, has_executor=has_executor)
    return {call.size_bytes: promise for call, promise in found.items()}


def test_what_changed_is_named_and_the_mean_is_over_the_common_keys() -> None:
    later = replace(RING, provenance=Provenance("nccl", details="another driver"))
    found = compare_tables(
        {SMALL: RING, LARGE: RING},
        {SMALL: replace(RING, runs="tree LL", time_us=2.0), LARGE: later, HUGE: RING},
    )
    assert [key.call for key in found.keys] == [SMALL, LARGE, HUGE]
    assert [key.changes for key in found.keys] == [
        (Change.RUNS, Change.TIME),
        (Change.PROVENANCE,),
        (),
    ]
    assert [key.ratio for key in found.keys] == [2.0, 1.0, None]
    assert found.common == 2
    assert found.speedup == pytest.approx(math.sqrt(2.0))
    assert not any(key.is_same for key in found.keys)


def test_tables_without_a_common_key_have_no_mean() -> None:
    found = compare_tables({SMALL: RING}, {LARGE: RING})
    assert (found.common, found.speedup) == (0, None)
    assert compare_tables({SMALL: RING}, {SMALL: RING}).keys[0].is_same


def test_a_job_without_the_executor_is_promised_the_setting_beside_the_schedule() -> None:
    table, _ = tuned(FOUR_GPUS)
    with_it, without = (entries_of(table, has_executor=has) for has in (True, False))
    assert {size: promise.time_us for size, promise in with_it.items()} == {
        1024: 4.0, 2048: 2.0, 4096: 8.0,
    }  # fmt: skip
    assert {size: promise.time_us for size, promise in without.items()} == {
        1024: 8.0, 2048: 16.0, 4096: 8.0,
    }  # fmt: skip
    assert without[1024].runs == "ring LL ch4"
    assert without[2048].runs == "NCCL's own choice"


def test_a_placed_entry_that_changed_is_named_by_its_gpus() -> None:
    before, after = (
        Table("t", "test", (), (), placements=tuple(placed_pairs((8,), (channels,))))
        for channels in (4, 2)
    )
    sides = [
        promises_of_entries(table, Evidence.MEASURED, has_executor=False)
        for table in (before, after)
    ]
    same, changed = compare_tables(*sides).keys
    assert same.is_same
    assert same.call == TunedCall(TWO_RANKS, Operation.ALL_GATHER, 2 * M, "gpu0 and gpu1")
    assert changed.call.placement == "gpu0 and gpu2"
    assert changed.changes == (Change.RUNS,)
    assert changed.second is not None
    assert changed.second.runs == "ring Simple ch2"
    alone = compare_tables(sides[0], {})
    assert [key.is_common for key in alone.keys] == [False, False]


def test_nccls_time_under_a_profile_is_not_known_from_entries() -> None:
    table, _ = tuned(FOUR_GPUS, profile={"NCCL_NTHREADS": "256"})
    promise = entries_of(table, has_executor=False)[2048]
    assert (promise.runs, promise.time_us) == ("NCCL under the profile", None)
    call = TunedCall(FOUR_GPUS, Operation.ALL_REDUCE, 2048)
    found = compare_tables({call: promise}, {call: RING})
    assert (found.common, found.speedup) == (1, None)
