"""What a job runs, in words that every view shares."""

from __future__ import annotations

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import NcclProtocol, ScheduleConfig
from tests.lookup_tables.tables import SCHEDULE, make_entry, make_table
from tuccl.reports.choice_text import runs_text
from tuccl.reports.keys import Runner


@pytest.mark.parametrize(
    ("collective", "root"),
    [(Collective.BROADCAST, ", root 0 only"), (Collective.ALL_GATHER, "")],
)
def test_a_schedule_of_a_rooted_operation_serves_root_0_only(
    collective: Collective, root: str
) -> None:
    config = ScheduleConfig(SCHEDULE.content_hash, NcclProtocol.LL, 2, 512, 1 << 20)
    entry = make_entry(collective, 1, 2, None, schedule=config)
    text = runs_text(Runner.EXECUTOR, entry, make_table([entry]))
    assert text == f"ring of 8 LL ch2 th512 buf1M{root}"
