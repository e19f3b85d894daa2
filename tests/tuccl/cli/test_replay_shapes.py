"""A run of several shapes is recorded, and replayed elsewhere with the same table."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.collective import Collective
from lookup_tables.store import table_from_parquet_bytes
from lookup_tables.table import Shape, Table
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster, hybrid_mesh
from tests.tuccl.conftest import Run
from tests.tuccl.ready_command import ReadyCommand
from tests.tuccl.views.page.reported import seen
from tests.tuccl.workloads.made_workloads import call, workload, written
from tuccl.measuring.records.record_file import read_record, write_record
from tuccl.reports.evidence import Evidence
from tuccl.reports.report import Report
from tuccl.views.page.so_far import read_so_far
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

SHAPES = ("--shapes", "whole,node,rail")
KEYS = ("--operations", "all_reduce", "--min-size", "64K", "--max-size", "64K")


def table_of(workspace: Path) -> Table:
    (path,) = workspace.glob("runs/*/table.parquet")
    return table_from_parquet_bytes(path.read_bytes(), str(path))


def choices(workspace: Path) -> list[Any]:
    """Everything of a table but when and by what it was measured."""
    table = table_of(workspace)
    entries = [
        (each.key, each.builtin, each.schedule, each.time_us, each.default_time_us, each.samples)
        for each in (*table.entries, *(e for own in table.placements for e in own.entries))
    ]
    placements = [(own.shape, own.number, own.example, own.lines) for own in table.placements]
    return [table.profile, table.schedules, entries, placements]


def measured(workspace: Path) -> list[dict[str, Any]]:
    """The lines of a log below those that name its run."""
    (path,) = workspace.glob("runs/*/measurements.jsonl")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()[2:]]
    return [{name: value for name, value in line.items() if name != "sum"} for line in lines]


@pytest.fixture(scope="module")
def recorded_once(
    tuccl_command: str, ready_command: ReadyCommand, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Folder of a run over three shapes, with schedules, and of its record."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "machine.json").write_text(topology_to_json(cluster(2, 2, 2)), encoding="utf-8")
    run = ["init", "--topology", "machine.json", *KEYS, *SHAPES]
    words = [*run, "--record", "r.parquet", "--workspace", "first"]
    done = ready_command.run(folder, [tuccl_command, *words])
    assert done.returncode == 0, done.stderr
    (folder / "machine.json").unlink()
    return folder


@pytest.fixture
def recorded(recorded_once: Path, tmp_path: Path) -> Path:
    """The test's own copy of the record, with the run beside it."""
    shutil.copytree(recorded_once, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path / "r.parquet"


def test_the_same_search_ends_with_the_same_table(
    run_inside: Run, recorded: Path, tmp_path: Path
) -> None:
    record = read_record(recorded)
    assert set(record.shapes) == {Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1)}
    again = ("init", "--records", "r.parquet", "--workspace", "again")
    done = run_inside(*again, "--record", "again.parquet")
    assert done.returncode == 0, done.stderr
    assert "note: the recorded search is repeated step by step" in done.stderr
    assert "not in the record" not in done.stderr
    assert choices(tmp_path / "again") == choices(tmp_path / "first")
    assert any(entry[2] for entry in choices(tmp_path / "again")[2]), "a schedule won"
    assert measured(tmp_path / "again") == measured(tmp_path / "first")
    first, second = (
        Report.model_validate_json(next(tmp_path.glob(f"{name}/runs/*/report.json")).read_text())
        for name in ("first", "again")
    )
    assert (second.schedules, second.shapes) == (first.schedules, first.shapes)
    assert [key.builtin and key.builtin.config for key in second.keys] == [
        key.builtin and key.builtin.config for key in first.keys
    ]
    assert run_inside("ship", "shipped", "--workspace", "again").returncode == 0
    bundle = load_bundle(next(tmp_path.glob("shipped/bundle-*.tuccl")))
    for shape in record.shapes:
        found = bundle.lookup(Collective.ALL_REDUCE, 64 << 10, shape)
        assert found is not None
        assert found.schedule is not None
    assert all(stored.program for stored in bundle.schedules)
    made = read_record(tmp_path / "again.parquet")
    assert (made.rows, made.of_run) == (record.rows, record.of_run)
    assert made.provenance.replayed


def test_another_search_chooses_among_what_was_recorded(
    run_inside: Run, recorded: Path, tmp_path: Path
) -> None:
    words = ("--records", recorded, "--shapes", "rail,node", "--seed", "3", "--json")
    done = run_inside("init", *words)
    assert done.returncode == 0, done.stderr
    assert "it differs from the recorded one in --shapes, --seed" in done.stderr
    shapes = [Shape(**key["shape"]) for key in json.loads(done.stdout)["keys"]]
    assert shapes == [Shape(2, 2, 1), Shape(2, 1, 2)]


def test_placements_are_replayed_with_their_estimates(run_inside: Run, tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text(topology_to_json(hybrid_mesh()), encoding="utf-8")
    run = ("--shapes", "pairs", "--operations", "all_gather", "--min-size", "256K")
    done = run_inside(
        "tune", "--topology", "machine.json", *run, "--max-size", "4M", "--record", "r.parquet",
        "--workspace", "first",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = read_record(tmp_path / "r.parquet")
    assert len({row.task.placement for row in record.rows}) > 2
    assert record.of_run.cost_tables
    done = run_inside("tune", "--records", "r.parquet", "--workspace", "again")
    assert done.returncode == 0, done.stderr
    assert choices(tmp_path / "again") == choices(tmp_path / "first")
    assert table_of(tmp_path / "again").placements
    # The first run has also asked where NCCL's own choice changes between its sizes.
    first, again = measured(tmp_path / "first"), measured(tmp_path / "again")
    asked = [line for line in again if "costs" in line]
    assert asked
    assert all(line in first for line in asked)
    times = [line for line in first if "costs" not in line]
    assert [line for line in again if "costs" not in line] == times


def test_a_search_of_points_that_are_not_recorded_says_how_many(
    run_inside: Run, recorded: Path, tmp_path: Path
) -> None:
    """A record that lost rows since lacks what the search asks for."""
    record = read_record(recorded)
    kept = [row for row in record.rows if row.config.nchannels != 8]
    write_record(recorded, replace(record, rows=tuple(kept)))
    done = run_inside("init", "--records", recorded, "--workspace", "again")
    assert done.returncode == 0, done.stderr
    assert "note: not in the record: " in done.stderr


def test_a_record_of_modelled_times_makes_a_modelled_table_also_without_an_entry(
    run_inside: Run, recorded: Path, tmp_path: Path
) -> None:
    record = read_record(recorded)
    slow = tuple(
        row
        if row.config.is_default
        else replace(
            row, samples_us=tuple(9.0 * us for us in row.samples_us), answers=(), unasked_s=1.0
        )
        for row in record.rows
    )
    write_record(recorded, replace(record, rows=slow))
    done = run_inside("init", "--records", recorded, "--seed", "1", "--workspace", "slow")
    assert done.returncode == 0, done.stderr
    assert table_of(tmp_path / "slow").entries == ()
    assert "(modelled, simulated" in done.stdout
    assert "from a record)" in " ".join(done.stdout.split())
    assert run_inside("report", "slow").returncode == 0
    page = " ".join(seen((tmp_path / "tuccl-report.html").read_text()).texts)
    assert "simulated, modelled, from a record" in page
    so_far = read_so_far(Workspace(tmp_path / "slow").current(), tmp_path / "slow")
    assert (so_far.source, so_far.evidence) == ("simulated", Evidence.MODELLED)


def test_the_keys_of_a_workload_are_replayed_on_its_own_shapes(
    run_inside: Run, tmp_path: Path
) -> None:
    (tmp_path / "machine.json").write_text(topology_to_json(cluster(2, 2, 2)), encoding="utf-8")
    calls = (
        call(Collective.ALL_REDUCE, 5000, 2.0, ranks=4, nodes=2),
        call(Collective.ALL_GATHER, 70_000, 1.0, ranks=2, nodes=2),
    )
    job = ("--workload", written(tmp_path / "job.json", workload(*calls)), "--budget", "5s")
    first = ("init", "--topology", "machine.json", *job, "--workspace", "first")
    done = run_inside(*first, "--record", "r.parquet")
    assert done.returncode == 0, done.stderr
    done = run_inside("init", "--records", "r.parquet", *job, "--workspace", "again")
    assert done.returncode == 0, done.stderr
    assert "note: the recorded search is repeated step by step" in done.stderr
    assert choices(tmp_path / "again") == choices(tmp_path / "first")
    assert measured(tmp_path / "again") == measured(tmp_path / "first")
    refused = run_inside("init", "--records", "r.parquet", "--workspace", "third")
    assert refused.returncode == 2, refused.stderr
    assert "or the run's --workload" in refused.stderr
