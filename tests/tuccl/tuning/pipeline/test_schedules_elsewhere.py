"""Schedules on the uneven benchmark machines: an entry is safe wherever ranks sit, or left out."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Entry, ScheduleConfig, Shape
from tests.sketches.machines import bench_topologies
from tests.tuccl.silent_progress import silent
from tuccl.models.placements import placements
from tuccl.options.run_options import RunOptions
from tuccl.reports.tuning_result import TuningResult
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.shapes import NamedShape, ShapeName
from tuccl.tuning.pipeline.carried_table import profile_of
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.stages import initialize
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.measurement_lines import Contents, Recorded
from tuccl.workspace.measurement_log import read_log
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

SIZES = (1 << 16, 1 << 20)
PAIRS, QUADS, ACROSS = Shape(2, 1, 2), Shape(4, 1, 4), Shape(8, 2, 4)


def tuned(folder: Path, name: str, shape: Shape) -> TuningResult:
    """All_gather on the communicators of a shape, with schedules."""
    machines = bench_topologies()
    if not machines:
        pytest.skip("shared data not present")
    options = RunOptions(backend="simulated", cycles=1)
    shapes = (NamedShape(ShapeName.PAIRS, shape),)
    settings = RunSettings((Collective.ALL_GATHER,), SIZES, options, floor=None, shapes=shapes)
    return initialize(Prepared(machines[name][0], settings), Workspace(folder / "w"), silent)


def log_of(found: TuningResult) -> Contents:
    record = found.run.record()
    assert record is not None
    return read_log(found.run.measurements, record.identity)


def of_schedule(log: Contents, task: Task, schedule: ScheduleConfig) -> Recorded:
    (recorded,) = [
        each
        for each in log.all
        if each.task == task
        and (each.config.schedule, each.config.protocol) == (schedule.schedule, schedule.protocol)
        and (each.config.nchannels, each.config.nthreads, each.config.buffer_bytes)
        == (schedule.nchannels, schedule.nthreads, schedule.buffer_bytes)
    ]
    return recorded


def ratio(log: Contents, task: Task, entry: Entry, default: Config) -> float:
    """Time of NCCL's own choice over that of an entry's schedule, on a class of communicators."""
    assert entry.schedule is not None
    own = of_schedule(log, task, entry.schedule)
    assert not own.failed
    return median(log.known(task, default).samples_us) / median(own.samples_us)


@pytest.mark.parametrize(
    ("name", "shape"), [("dgx1_8xV100", PAIRS), ("ndv2_2x8", ACROSS)], ids=["pairs", "across"]
)
def test_a_schedule_that_is_an_entry_was_as_fast_in_every_class(
    tmp_path: Path, name: str, shape: Shape
) -> None:
    found = tuned(tmp_path, name, shape)
    classes = placements(bench_topologies()[name][0], shape)
    assert len(classes) == 2
    log, default = log_of(found), profile_of(found.table).default
    won = [entry for entry in found.table.entries if entry.schedule is not None]
    assert len(won) == len(SIZES)
    for entry in won:
        for own in classes:
            task = Task(entry.key.operation, entry.tuned_bytes, shape, own.placement)
            assert ratio(log, task, entry, default) > 0.99


def test_a_schedule_that_other_links_do_not_carry_is_left_out(tmp_path: Path) -> None:
    """Four GPUs of a quad are a ring of NVLinks; every other GPU of a host is not."""
    found = tuned(tmp_path, "dgx1_8xV100", QUADS)
    assert found.table.entries or found.table.placements
    assert all(entry.schedule is None for entry in found.table.entries)
    for key in found.report.keys:
        assert key.schedule is None
        assert any(
            sentence.startswith("schedule:")
            and "cannot be timed on communicators such as that of n0g0, n0g2, n0g4 and n0g6"
            in sentence
            for sentence in key.left_out
        )
