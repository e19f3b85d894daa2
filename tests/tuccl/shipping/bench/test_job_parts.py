"""Parts of a table, and tables of some of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.lookup import check_table
from lookup_tables.table import (
    NcclProtocol,
    RunnersUp,
    ScheduleConfig,
    Shape,
    StoredSchedule,
    Table,
)
from tests.tuccl.shipping.bench.shipped_tables import TWO_RANKS, all_gather_entry, placed_pairs
from tuccl.shipping.bench.job_figure import RunFigure
from tuccl.shipping.bench.job_parts import (
    MOST_FACTORS,
    PROFILE,
    JobPart,
    PartRound,
    job_parts,
    part_effects,
    parts_in,
    with_parts,
)
from tuccl.shipping.bench.own_job import JobRun

WHOLE = Shape(4, 2, 2)
GATHER = JobPart(TWO_RANKS, Collective.ALL_GATHER)
SCHEDULED = JobPart(WHOLE, Collective.ALL_GATHER)


@pytest.fixture
def table() -> Table:
    """all_gather of pairs, with placements, and by a schedule of the whole machine."""
    choice = ScheduleConfig("a" * 16, NcclProtocol.LL, 2, 256, 4096)
    scheduled = replace(all_gather_entry(2, shape=WHOLE), schedule=choice)
    return Table(
        "test", "test", (), (all_gather_entry(2), scheduled), {"NCCL_NTHREADS": "256"},
        (StoredSchedule("a" * 16, "rail", ""),), tuple(placed_pairs((4,), ())),
    )  # fmt: skip


def test_parts_are_operations_of_shapes_and_the_profile(table: Table) -> None:
    assert job_parts(table) == (GATHER, SCHEDULED, PROFILE)
    assert job_parts(replace(table, profile={})) == (GATHER, SCHEDULED)
    assert [str(part) for part in (GATHER, JobPart(WHOLE, None), PROFILE)] == [
        "all_gather, 2 ranks on 1 node(s)",
        "all operations, 4 ranks on 2 node(s)",
        "process profile",
    ]


def test_many_parts_are_those_of_shapes(table: Table) -> None:
    shapes = [Shape(ranks, 1, ranks) for ranks in range(2, 2 + MOST_FACTORS)]
    many = replace(table, entries=tuple(all_gather_entry(2, shape=shape) for shape in shapes))
    assert job_parts(many)[:-1] == tuple(JobPart(shape, None) for shape in shapes)


def test_a_table_of_some_parts(table: Table) -> None:
    assert with_parts(table, job_parts(table)) == table
    nothing = with_parts(table, ())
    assert (nothing.all_entries, nothing.profile, nothing.schedules) == ((), {}, ())
    assert nothing.placements == ()
    pairs = with_parts(table, [GATHER])
    assert [entry.key.shape for entry in pairs.all_entries] == [TWO_RANKS, TWO_RANKS]
    assert (pairs.placements, pairs.schedules) == (table.placements, ())
    whole = with_parts(table, [SCHEDULED, PROFILE])
    assert (whole.schedules, whole.profile) == (table.schedules, table.profile)
    assert (whole.placements, len(whole.entries)) == ((), 1)


def test_runners_up_and_their_schedules_are_in_no_part(table: Table) -> None:
    tried = ScheduleConfig("b" * 16, NcclProtocol.LL, 2, 256, 4096)
    learning = replace(
        table,
        schedules=(*table.schedules, StoredSchedule("b" * 16, "ring", "")),
        runners_up=(RunnersUp(table.entries[0].key, (), (tried,)),),
    )
    check_table(learning)
    parts = with_parts(learning, job_parts(learning))
    check_table(parts)
    assert parts == table


def test_effects_by_hand() -> None:
    """The first part halves the time, the second does nothing: 50, 100, 50, 100 ms."""
    parts = (GATHER, PROFILE)
    rounds = [
        PartRound((0, 1), JobRun(50.0, 1.0), JobRun(100.0, 1.0)),
        PartRound((0,), JobRun(50.0, 1.0), JobRun(100.0, 1.0)),
        PartRound((0, 1), JobRun(50.0, 1.0), JobRun(100.0, 1.0)),
    ]
    assert parts_in(parts, (1, -1), -1) == (PROFILE,)
    found = part_effects(parts, [*rounds, rounds[1]], RunFigure())
    assert [each.gain.ratio for each in found] == pytest.approx([2.0, 1.0])
    assert rounds[0].log_ratio(RunFigure(higher_is_better=True)) == pytest.approx(-math.log(2.0))
    slower = part_effects(parts, [*rounds, rounds[1]], RunFigure(higher_is_better=True))
    assert slower[0].left_out
