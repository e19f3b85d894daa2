"""A modelled run on nodes of different sizes: its schedules are tabulated, and stand apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tests.synthesizer.programs.phased_schedules import has_rounds
from tests.tuccl.silent_progress import silent
from tuccl.options.run_options import RunOptions
from tuccl.reports.job_gains import Obstacle
from tuccl.reports.keys import Runner
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.stages import initialize
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

SIZES = (4 << 10, 4 << 20)


def test_rounds_win_where_they_are_faster_and_no_headline_counts_them(tmp_path: Path) -> None:
    settings = RunSettings((Collective.ALL_REDUCE,), SIZES, RunOptions(backend="simulated"))
    machine = Uneven((3, 1), 1, "mesh").topology()
    done = initialize(Prepared(machine, settings), Workspace(tmp_path), silent)
    entries = [entry for entry in done.table.entries if entry.schedule is not None]
    assert entries, "all_reduce of 4 KB crosses the network once, NCCL's ring and trees twice"
    used = {entry.schedule.schedule for entry in entries if entry.schedule is not None}
    programs = {each.content_hash: each.program for each in done.table.schedules}
    assert all(has_rounds(programs[content_hash]) for content_hash in used)
    assert all(entry.time_us < entry.default_time_us for entry in entries)
    gains = done.gains
    assert set(gains.obstacles) == {Obstacle.NOT_MEASURED}
    assert Runner.EXECUTOR not in gains.runners
    assert gains.speedup < gains.speedup_with_all_schedules
