"""Runs on many equal machines: what they leave grows with the entries, not with the ranks."""

from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.collective import Collective
from tests.synthesizer.programs.phased_schedules import is_uniform
from tests.tuccl.conftest import Run as RunCommand
from tests.tuccl.silent_progress import silent
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.stages import initialize
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.runs import Run, Workspace

BUNDLE_BYTES = 1 << 10
"""Most bytes of a bundle without entries."""
ENTRY_BYTES = 400
"""Most bytes of an entry, or of a runner-up, with a schedule of its own."""


def check_sizes(run: Run) -> None:
    bundle = load_bundle(run.bundle)
    entries = len(bundle.entries)
    assert entries > 0
    entries += sum(len(own.schedules) for own in bundle.runners_up)
    assert all(is_uniform(schedule.program) for schedule in bundle.schedules)
    assert run.bundle.stat().st_size <= BUNDLE_BYTES + ENTRY_BYTES * entries
    # Of each entry the settings to try, too, which Parquet keeps twice.
    assert run.table.stat().st_size <= (16 << 10) + 3 * ENTRY_BYTES * entries


@pytest.mark.long
@pytest.mark.parametrize("nodes", [2, 24])
def test_what_a_run_leaves_does_not_grow_with_the_ranks(nodes: int, tmp_path: Path) -> None:
    topology = load_machine(MachineOptions("shipped:a100-8gpu-8nic", nodes=nodes))
    one_key = RunSettings((Collective.ALL_REDUCE,), (1 << 22,))
    run = initialize(Prepared(topology, one_key), Workspace(tmp_path), silent).run
    check_sizes(run)
    assert not list(run.schedules.rglob("*.xml")), "steps of all ranks"


@pytest.mark.slow
def test_sixteen_machines_are_tuned_whole(
    run_tuccl: RunCommand, a100: Path, tmp_path: Path
) -> None:
    done = run_tuccl("init", "--topology", a100, "--nodes", "16", "--shapes", "whole")
    assert done.returncode == 0, done.stderr
    run = Workspace(tmp_path / "tuccl-workspace").current()
    check_sizes(run)
    assert {path.name for path in run.schedules.iterdir()} == {
        "all_gather",
        "all_reduce",
        "reduce_scatter",
    }
