"""What a job learned as entries of a table."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.lookup import lookup
from lookup_tables.provenance import Provenance
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    NcclAlgorithm,
    NcclProtocol,
    RunnersUp,
    ScheduleConfig,
    Shape,
    Table,
)
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.learned import ArmKind, LearnedArm, LearnedKey
from tuccl.tuning.learned_table import with_learned

TREE = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL)
JOB = Provenance("learned", details="learned in the job a")
TABLE, _ = tuned(FOUR_GPUS)
"""Entries of all_reduce for 1024 to 2047 bytes, to 4095 and to 8191, measured at the least."""


def key(size: int, choice: int = 2, *, races: int = 1, shape: Shape = FOUR_GPUS) -> LearnedKey:
    """The table's choice takes 9 us, NCCL's own 8 us, a tree 6 us, the table's setting 7 us."""
    arms = (
        LearnedArm(ArmKind.SCHEDULE, None, 9.0, refused=False),
        LearnedArm(ArmKind.NCCL, None, 8.0, refused=False),
        LearnedArm(ArmKind.SETTING, TREE, 6.0, refused=False),
        LearnedArm(ArmKind.TABLE, None, 7.0, refused=False),
    )
    return LearnedKey(Collective.ALL_REDUCE, size, shape, 100, races, choice, arms)


def learned(*keys: LearnedKey, table: Table = TABLE) -> Table:
    return with_learned(table, keys, JOB, "2026-02-03T04:05:06Z")[0]


def at(table: Table, size: int) -> Entry | None:
    return lookup(table.entries, Collective.ALL_REDUCE, size, FOUR_GPUS)


Runs = tuple[BuiltinConfig | None, ScheduleConfig | None]
NOTHING: Runs = (None, None)


def runs(entry: Entry | None) -> Runs:
    return NOTHING if entry is None else (entry.builtin, entry.schedule)


def pieces(table: Table) -> list[tuple[int, int, Runs]]:
    """The table's entries for 1024 to 2047 bytes."""
    keys = ((entry.key.min_bytes, entry.key.max_bytes, runs(entry)) for entry in table.entries)
    return [piece for piece in keys if piece[0] < 2048]


def test_what_won_at_the_measured_size_serves_its_range() -> None:
    made = learned(key(1024))
    entry = at(made, 1024)
    assert entry is not None
    assert (entry.key.min_bytes, entry.key.max_bytes) == (1024, 2047)
    assert (entry.builtin, entry.schedule) == (TREE, None)
    assert (entry.time_us, entry.builtin_time_us, entry.default_time_us) == (6.0, 6.0, 8.0)
    assert (entry.provenance, entry.tuned_at) == (JOB, "2026-02-03T04:05:06Z")
    assert [each for each in made.entries if each != entry] == list(TABLE.entries[1:])


def test_another_size_divides_the_range() -> None:
    made = learned(key(1500))
    below, above = at(made, 1499), at(made, 1500)
    assert below is not None
    assert above is not None
    assert replace(below, key=TABLE.entries[0].key) == TABLE.entries[0]
    assert (below.key.min_bytes, below.key.max_bytes) == (1024, 1499)
    assert (above.key.min_bytes, above.key.max_bytes, above.builtin) == (1500, 2047, TREE)


FIRST = TABLE.entries[0]
OWN, RING = runs(FIRST), (FIRST.builtin, None)
BY_TREE = (TREE, None)


@pytest.mark.parametrize(
    ("found", "divided"),
    [
        ([(1024, 2), (1500, 3)], [(1024, 1499, BY_TREE), (1500, 2047, RING)]),
        ([(1024, 2), (1500, 0)], [(1024, 1499, BY_TREE), (1500, 2047, OWN)]),
        ([(1024, 1), (1500, 3)], [(1500, 2047, RING)]),
        ([(1024, 2), (1500, 2)], [(1024, 2047, BY_TREE)]),
        (
            [(1500, 2), (1700, 0)],
            [(1024, 1499, OWN), (1500, 1699, BY_TREE), (1700, 2047, OWN)],
        ),
        ([(1500, 0), (1700, 2)], [(1024, 1699, OWN), (1700, 2047, BY_TREE)]),
        ([(1500, 1), (1700, 2)], [(1024, 1499, OWN), (1700, 2047, BY_TREE)]),
    ],
)
def test_several_learned_sizes_divide_a_range_once(
    found: list[tuple[int, int]], divided: list[tuple[int, int, Runs]]
) -> None:
    for order in permutations(found):
        assert pieces(learned(*(key(size, choice) for size, choice in order))) == divided


def test_below_the_measured_size_a_learned_one_serves_those_that_are_smaller() -> None:
    entry = replace(FIRST, tuned_bytes=2000)
    table = replace(TABLE, entries=(entry, *TABLE.entries[1:]))
    made = learned(key(1800), key(1200, choice=0), key(1500, choice=1), table=table)
    assert pieces(made) == [(1024, 1200, OWN), (1501, 1800, BY_TREE), (1801, 2047, OWN)]


def test_the_tables_choice_has_its_time_in_the_job_away_from_the_measured_size() -> None:
    kept = at(learned(key(1500), key(1700, choice=0)), 1700)
    assert kept is not None
    assert (kept.tuned_bytes, kept.provenance) == (1700, JOB)
    assert (kept.time_us, kept.default_time_us) == (9.0, 8.0)
    assert (kept.builtin_time_us, kept.confirmation) == (FIRST.builtin_time_us, None)
    untimed = key(1700, choice=0)
    untimed = replace(untimed, arms=tuple(replace(arm, time_us=None) for arm in untimed.arms))
    kept = at(learned(key(1500), untimed), 1700)
    assert kept == replace(FIRST, key=replace(FIRST.key, min_bytes=1700), tuned_bytes=1700)


def test_sizes_are_changes_where_they_run_another_choice_than_before() -> None:
    keys = [key(1500), key(1600), key(1700, choice=0), key(1800, choice=3)]
    _, changes = with_learned(TABLE, keys, JOB, "2026-02-03T04:05:06Z")
    assert [change.key.size_bytes for change in changes] == [1500, 1600, 1800]


def test_a_size_without_an_entry_gets_one_for_itself() -> None:
    made = learned(key(64))
    entry = at(made, 64)
    assert entry is not None
    assert (entry.key.min_bytes, entry.key.max_bytes) == (64, 64)
    assert at(made, 65) is None


def test_nccls_own_choice_takes_the_entry_away() -> None:
    made = learned(key(2048, choice=1))
    assert at(made, 2048) is None
    assert at(made, 3000) is None
    assert at(made, 1024) == TABLE.entries[0]


def test_the_tables_own_setting_comes_without_its_schedule() -> None:
    entry = at(learned(key(1024, choice=3)), 1024)
    assert entry is not None
    assert (entry.builtin, entry.schedule) == (TABLE.entries[0].builtin, None)


def test_what_is_not_learned_or_not_new_changes_nothing() -> None:
    assert learned(key(1024, choice=0), key(2048, races=0)) == TABLE
    _, changes = with_learned(TABLE, [key(64, choice=1)], JOB, "2026-02-03T04:05:06Z")
    assert changes == ()


def test_another_schedule_changes_places_with_the_entrys() -> None:
    first = TABLE.entries[0]
    assert first.schedule is not None
    tried = replace(first.schedule, nchannels=3)
    runners_up = RunnersUp(replace(first.key, max_bytes=4095), (TREE,), (tried,))
    won = LearnedKey(
        Collective.ALL_REDUCE, 1024, FOUR_GPUS, 100, 1, 2,
        (
            LearnedArm(ArmKind.SCHEDULE, None, 9.0, False, first.schedule, "two phases"),
            LearnedArm(ArmKind.NCCL, None, 8.0, refused=False),
            LearnedArm(ArmKind.SCHEDULE, None, 4.0, False, tried, "two phases"),
        ),
    )  # fmt: skip
    made = learned(won, table=replace(TABLE, runners_up=(runners_up,)))
    entry = at(made, 1024)
    assert entry is not None
    assert (entry.schedule, entry.builtin) == (tried, first.builtin)
    assert (entry.time_us, entry.builtin_time_us) == (4.0, first.builtin_time_us)
    assert made.runners_up == (replace(runners_up, schedules=(first.schedule, tried)),)
    assert made.schedules == TABLE.schedules
    assert learned(won, table=made) == made


def test_a_replaced_schedule_is_a_runner_up() -> None:
    made = learned(key(1024), key(2048))
    assert made.schedules == TABLE.schedules
    assert [(own.key, own.schedules) for own in made.runners_up] == [
        (entry.key, (entry.schedule,)) for entry in TABLE.entries if entry.schedule is not None
    ][:2]


def test_a_runner_up_that_serves_windows_does_so_as_an_entry() -> None:
    first = TABLE.entries[0]
    assert first.schedule is not None
    tried = replace(first.schedule, nchannels=3, in_windows=True)
    arms = (
        LearnedArm(ArmKind.NCCL, None, 8.0, refused=False),
        LearnedArm(ArmKind.SCHEDULE, None, 4.0, False, replace(tried, in_windows=False), "two"),
    )
    won = LearnedKey(Collective.ALL_REDUCE, 1024, FOUR_GPUS, 100, 1, 1, arms)
    table = replace(TABLE, runners_up=(RunnersUp(first.key, (), (tried,)),))
    entry = at(learned(won, table=table), 1024)
    assert entry is not None
    assert entry.schedule == tried


def expected(size: int, found: Mapping[int, int], table: Table) -> Runs:
    """What serves a size: the choice of the nearest that is known towards the measured one."""
    own = at(table, size)
    if own is None:
        return BY_TREE if found.get(size) == 2 else NOTHING
    tuned, inside = own.tuned_bytes, (own.key.min_bytes, own.key.max_bytes)
    known = {tuned, *(each for each in found if inside[0] <= each <= inside[1])}
    between = [each for each in known if min(size, tuned) <= each <= max(size, tuned)]
    nearest = min(between, key=lambda each: abs(each - size))
    return {0: runs(own), 1: NOTHING, 2: BY_TREE, 3: (own.builtin, None)}[found.get(nearest, 0)]


@given(
    st.dictionaries(
        st.one_of(st.integers(512, 9000), st.sampled_from([1024, 2048, 4096])),
        st.integers(0, 3),
        max_size=12,
    ),
    st.tuples(*(st.floats(0.0, 1.0) for _ in range(3))),
    st.randoms(use_true_random=False),
)
def test_each_size_has_the_choice_of_the_nearest_in_any_order_of_the_keys(
    found: dict[int, int], measured: tuple[float, ...], order: Random
) -> None:
    entries = (
        replace(entry, tuned_bytes=round(entry.key.min_bytes * (1.0 + 0.9 * share)))
        for entry, share in zip(TABLE.entries, measured, strict=True)
    )
    table = replace(TABLE, entries=tuple(entries))
    keys = [key(size, choice) for size, choice in found.items()]
    made = learned(*keys, table=table)  # It checks the table.
    near = {size + step for size in (*found, 1024, 2048, 4096, 8192) for step in (-1, 0, 1)}
    for size in near:
        assert runs(at(made, size)) == expected(size, found, table)
    assert learned(*keys, table=made) == made
    order.shuffle(keys)
    assert learned(*keys, table=table) == made


@pytest.mark.parametrize("size", [1024, 64])
def test_another_communicator_is_another_key(size: int) -> None:
    made = learned(key(size, shape=Shape(2, 1, 2)))
    assert made.entries[1:] == TABLE.entries
