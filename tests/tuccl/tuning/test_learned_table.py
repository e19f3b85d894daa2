"""What a job learned as entries of a table."""

from dataclasses import replace

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
    return lookup(table, Collective.ALL_REDUCE, size, FOUR_GPUS)


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


@given(
    st.lists(
        st.tuples(st.integers(512, 9000), st.integers(0, 3)),
        max_size=12,
        unique_by=lambda each: each[0],
    )
)
def test_every_learned_size_has_its_choice_and_the_table_is_sound(
    found: list[tuple[int, int]],
) -> None:
    # The one that was measured first: what is learned there serves the range.
    order = sorted(found, key=lambda each: (each[0] not in {1024, 2048, 4096}, each[0]))
    made = learned(*(key(size, choice) for size, choice in order))  # It checks the table.
    for size, choice in order:
        entry = at(made, size)
        if choice == 1:
            assert entry is None
        if choice == 2:
            assert entry is not None
            assert entry.builtin == TREE
    again = learned(*(key(size, choice) for size, choice in order), table=made)
    for size, choice in order:
        if choice in {1, 2}:
            before, after = at(made, size), at(again, size)
            assert (before and before.builtin) == (after and after.builtin)


@pytest.mark.parametrize("size", [1024, 64])
def test_another_communicator_is_another_key(size: int) -> None:
    made = learned(key(size, shape=Shape(2, 1, 2)))
    assert made.entries[1:] == TABLE.entries
