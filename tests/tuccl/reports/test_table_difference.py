"""One table against another, key by key."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Table
from tests.tuccl.shipping.bench.shipped_tables import TWO_RANKS, M, placed_pairs
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.evidence import Evidence
from tuccl.reports.keys import Gain, KeyFigures, Runner, Verdict
from tuccl.reports.table_difference import (
    Change,
    DiffSide,
    TableDifference,
    compare_keys,
    keys_of_entries,
)

SIDE = DiffSide("place", "machine", "1" * 16, None, {}, 1)
RING = KeyFigures(
    operation=Collective.ALL_REDUCE,
    size_bytes=1,
    shape=FOUR_GPUS,
    stock_us=8.0,
    table_us=4.0,
    gain=None,
    runner=Runner.PLUGIN,
    runs="ring LL",
    provenance=Provenance("nccl"),
)
LARGE, HUGE = (replace(RING, size_bytes=size) for size in (2, 3))


def compared(first: Sequence[KeyFigures], second: Sequence[KeyFigures]) -> TableDifference:
    return TableDifference(SIDE, SIDE, compare_keys(first, second))


def entries_of(table: Table, *, has_executor: bool) -> dict[int, KeyFigures]:
    found = keys_of_entries(table, Evidence.MEASURED, has_executor=has_executor)
    return {key.size_bytes: key for key in found}


def test_what_changed_is_named_and_the_mean_is_over_the_common_keys() -> None:
    later = replace(LARGE, provenance=Provenance("nccl", details="another driver"))
    found = compared((RING, LARGE), (HUGE, later, replace(RING, runs="tree LL", table_us=2.0)))
    assert [key.size_bytes for key in found.keys] == [1, 2, 3]
    assert [key.changes for key in found.keys] == [
        (Change.RUNS, Change.TIME),
        (Change.PROVENANCE,),
        (),
    ]
    assert [key.ratio for key in found.keys] == [2.0, 1.0, None]
    assert found.common == 2
    assert found.speedup == pytest.approx(math.sqrt(2.0))
    assert not any(key.is_same for key in found.keys)


def test_the_bounds_of_the_mean_are_as_wide_as_those_of_its_keys() -> None:
    first = [replace(key, gain=Gain(2.0, 1.9, 2.1)) for key in (RING, LARGE)]
    second = [replace(RING, table_us=3.0), LARGE]
    found = compared(first, second)
    of_key, mean = found.keys[0].gain, found.mean
    assert of_key is not None
    assert mean is not None
    assert mean.ratio == pytest.approx(math.sqrt(4.0 / 3.0))
    assert mean.low is not None
    assert of_key.low is not None
    assert mean.low / mean.ratio == pytest.approx(of_key.low / of_key.ratio)


def test_tables_without_a_common_key_have_no_mean() -> None:
    found = compared([RING], [LARGE])
    assert (found.common, found.speedup, found.same) == (0, None, False)
    assert compared([RING], [RING]).same


def test_a_job_without_the_executor_is_promised_the_setting_beside_the_schedule() -> None:
    table, _ = tuned(FOUR_GPUS)
    with_it, without = (entries_of(table, has_executor=has) for has in (True, False))
    assert {size: key.table_us for size, key in with_it.items()} == {
        1024: 4.0, 2048: 2.0, 4096: 8.0,
    }  # fmt: skip
    assert {size: key.table_us for size, key in without.items()} == {
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
        keys_of_entries(table, Evidence.MEASURED, has_executor=False) for table in (before, after)
    ]
    same, changed = compare_keys(sides[0], sides[1])
    assert same.is_same
    assert same.order == (TWO_RANKS, Collective.ALL_GATHER, 2 * M, "gpu0 and gpu1")
    assert changed.placement == "gpu0 and gpu2"
    assert changed.changes == (Change.RUNS,)
    assert changed.second is not None
    assert changed.second.runs == "ring Simple ch2"
    assert [key.is_common for key in compare_keys(sides[0], ())] == [False, False]


def test_nccls_time_under_a_profile_is_not_known_from_entries() -> None:
    table, _ = tuned(FOUR_GPUS, profile={"NCCL_NTHREADS": "256"})
    promise = entries_of(table, has_executor=False)[2048]
    assert (promise.runs, promise.table_us) == ("NCCL under the profile", None)
    found = compared([promise], [replace(RING, size_bytes=2048)])
    assert (found.common, found.speedup) == (1, None)


def test_an_unknown_time_is_no_difference() -> None:
    """A run has timed what its shipped directory does not know."""
    table, _ = tuned(FOUR_GPUS, profile={"NCCL_NTHREADS": "256"})
    promise = entries_of(table, has_executor=False)[2048]
    timed = replace(promise, table_us=14.0, gain=Gain(16.0 / 14.0, None, None))
    assert compared([promise], [timed]).same
    assert compared([timed], [promise]).same
    (key,) = compared([promise], [replace(timed, runs="ring LL")]).keys
    assert key.changes == (Change.RUNS,)


def test_times_within_the_error_of_two_starts_are_not_told_apart() -> None:
    """Stock NCCL's own choice differs by 0.3 % from run to run, and by 1.5 % between starts."""
    own = replace(RING, runner=Runner.NCCL, table_us=8.0, gain=Gain(1.0, 1.0, 1.0))
    later = replace(own, stock_us=8.024, table_us=8.024)
    assert compared([own], [later]).same
    slow = replace(own, stock_us=8.2, table_us=8.2)
    (key,) = compared([own], [slow]).keys
    assert key.changes == (Change.TIME,)
    assert key.gain is not None
    assert key.gain.verdict is Verdict.SLOWER
    assert compare_keys([own], [slow], start_error=0.03)[0].is_same


def test_bounds_of_both_gains_count() -> None:
    """Twice as fast with 3 % and 4 % below and above: 5 % together, and 1.5 % between starts."""
    first = replace(RING, gain=Gain(2.0, 2.0 * math.exp(-0.03), 2.0 * math.exp(0.04)))
    second = replace(RING, table_us=4.25, gain=Gain(8 / 4.25, 1.8, 2.0))
    (key,) = compared([first], [second]).keys
    assert key.gain is not None
    low = math.exp(-0.015 - math.hypot(0.04, math.log(8 / 4.25 / 1.8)))
    high = math.exp(0.015 + math.hypot(0.03, math.log(2.0 / (8 / 4.25))))
    assert key.gain.low == pytest.approx(4 / 4.25 * low)
    assert key.gain.high == pytest.approx(4 / 4.25 * high)
    assert key.is_same
