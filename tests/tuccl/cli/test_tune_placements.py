"""`tuccl tune` on a machine whose pairs differ by where their ranks sit."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.store import table_from_parquet_bytes, table_to_parquet_bytes
from lookup_tables.table import BuiltinConfig, Entry, Shape, Table
from probes.topology.json_form import topology_to_json
from tests.lookup_tables.tables import lookup_placed
from tests.sketches.machines import cluster, hybrid_mesh
from tests.tuccl.conftest import Run, run_in
from tests.tuccl.reports.test_schemas import check
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.models.placements import placements
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.placement import Placement

pytestmark = pytest.mark.long

PAIRS = Shape(2, 1, 2)
KEYS = ("--operations", "all_gather", "--min-size", "256K", "--max-size", "4M")
RUN = ("--shapes", "pairs", "--cycles", "1", *KEYS)


def tuned(folder: Path) -> Table:
    (path,) = folder.glob("tuccl-workspace/runs/*/table.parquet")
    return table_from_parquet_bytes(path.read_bytes(), str(path))


def call_of(builtin: BuiltinConfig, profile: ProcessProfile) -> Config:
    call = Config(builtin.algorithm.value, builtin.protocol.value, builtin.nchannels)
    return profile.applied_to(call)


@pytest.fixture(scope="module")
def finished(
    tuccl_command: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder with a tuned workspace, made once, and what the command said."""
    folder = tmp_path_factory.mktemp("placements")
    machine = folder / "machine.json"
    machine.write_text(topology_to_json(hybrid_mesh()), encoding="utf-8")
    return folder, run_in(folder, [tuccl_command, "tune", "--topology", str(machine), *RUN])


@pytest.fixture
def folder(finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> Path:
    """The test's own copy, where `run_inside` looks for one."""
    name = "tuccl-workspace"
    shutil.copytree(finished[0] / name, tmp_path / name, symlinks=True)
    return tmp_path


def test_pairs_get_entries_by_their_links_and_none_loses(
    finished: tuple[Path, subprocess.CompletedProcess[str]], folder: Path, run_inside: Run
) -> None:
    done = finished[1]
    assert done.returncode == 0, done.stderr
    assert (
        "entries by where ranks sit, which the plugin recognizes by NCCL's estimates: "
        in done.stdout
    )
    table = tuned(folder)
    profile = ProcessProfile.of(tuple(table.profile.items()))
    model = SimulatedBackend(hybrid_mesh(), {}, seed=0, spread=0.0)

    def gain(entry: Entry, task: Task) -> float:
        assert entry.builtin is not None
        config = call_of(entry.builtin, profile)
        (time_us,) = model.measure(task, config, 0, 1).samples_us
        (default_us,) = model.measure(task, profile.default, 0, 1).samples_us
        return default_us / time_us

    classes = placements(hybrid_mesh(), PAIRS)
    found = []
    for own in classes:
        for entry in table.entries:
            key = entry.key
            task = Task(key.operation, entry.tuned_bytes, PAIRS, own.placement)
            assert gain(entry, task) >= 0.99, "an entry of any pair suits each"
        for size in (256 << 10, 1 << 20, 4 << 20):
            task = Task(Collective.ALL_GATHER, size, PAIRS, own.placement)
            costs = model.cost_table(task)
            assert costs is not None
            assert costs.ring_us is not None
            placed = lookup_placed(table.placements, task.operation, size, PAIRS, costs.ring_us)
            if placed is not None:
                found.append(gain(placed, task))
    assert len(found) > 1
    assert min(found) > 1.0, "a pair's own entry gains on it"
    entry = next(entry for own in table.placements for entry in own.entries)
    shown = run_inside("explain", "all_gather", str(entry.tuned_bytes), "--ranks", "2")
    assert "where NCCL's estimate is that of n0/gpu" in shown.stdout
    said = run_inside("explain", "all_gather", str(entry.tuned_bytes), "--ranks", "2", "--json")
    document = check("explain", said.stdout)
    assert [(own["placement"], own["size_bytes"]) for own in document["placed"]] == [
        (own.example, entry.tuned_bytes)
        for own in table.placements
        if entry.tuned_bytes in {each.tuned_bytes for each in own.entries}
    ]
    document = check("table", run_inside("table", "--shape", "pairs", "--json").stdout)
    assert [own["placement"] for own in document["placed"]] == [
        own.example for own in table.placements for _ in own.entries
    ]
    (path,) = folder.glob("tuccl-workspace/runs/*/bundle.tuccl")
    assert sum(len(own.entries) for own in load_bundle(path).placements) == sum(
        len(own.entries) for own in table.placements
    )
    whole, places = Shape(8, 1, 8), [own.placement for own in classes]
    for seen in table.placements:
        timed = seen.timed
        assert timed is not None
        assert timed.machine == whole
        assert Placement(timed.stride, timed.siblings) in places


def test_diff_and_show_name_the_placed_entries(folder: Path, run_inside: Run) -> None:
    """Those of a workspace and of the directory that it was shipped to are the same."""
    table = tuned(folder)
    placed = sum(len(own.entries) for own in table.placements)
    assert run_inside("ship", "mine").returncode == 0
    shown = check("show", run_inside("show", "mine", "--json").stdout)
    named = [each["placement"] for each in shown["entries"]]
    assert sum(name is not None for name in named) == placed
    assert "on communicators like" in run_inside("show", "mine").stdout
    document = check("diff", run_inside("diff", "tuccl-workspace", "mine", "--json").stdout)
    keys = [key for key in document["keys"] if key["placement"] is not None]
    assert len(keys) == placed > 1
    assert {key["placement"] for key in keys} <= {own.example for own in table.placements}
    assert not any(key["changes"] for key in keys)
    (folder / "mine" / "table.parquet").rename(folder / "kept.parquet")
    bare = check("show", run_inside("show", "mine", "--json").stdout)
    told = [each["placement"] for each in bare["entries"] if each["placement"]]
    assert len(told) == placed
    assert all(text.startswith("an estimate of ") for text in told), "a bundle has no GPUs"
    (folder / "kept.parquet").rename(folder / "mine" / "table.parquet")
    without = replace(table, placements=())
    (path,) = folder.glob("tuccl-workspace/runs/*/table.parquet")
    path.write_bytes(table_to_parquet_bytes(without))
    path.with_name("bundle.tuccl").write_bytes(bundle_bytes(without))
    done = run_inside("diff", "tuccl-workspace", "mine")
    assert f"{placed} in B alone" in done.stdout
    rows = " ".join(done.stdout.split())
    assert "on communicators like" in rows
    assert keys[0]["placement"] in rows


def test_on_an_even_machine_the_table_is_as_without_placements(
    run_tuccl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "machine.json"
    path.write_text(topology_to_json(cluster(1, 4, 4)), encoding="utf-8")
    done = run_tuccl("tune", "--topology", path, *RUN)
    assert done.returncode == 0, done.stderr
    assert "where ranks sit" not in done.stdout
    table = tuned(tmp_path)
    assert table.entries
    assert not table.placements


def test_report_shows_the_placed_entries_and_the_search(folder: Path, run_inside: Run) -> None:
    """The log of a run of one named shape names it with each key."""
    table = tuned(folder)
    done = run_inside("report", "--output", "page.html", "--json")
    assert done.returncode == 0, done.stderr
    figures = check("report", done.stdout)["figures"]
    (shown,) = figures["tables"]
    assert [key["placement"] for key in shown["placed"]] == [
        own.example for own in table.placements for _ in own.entries
    ]
    assert all(key["stock"]["low_us"] for key in shown["placed"]), "of its own samples"
    assert all(figures["search"]["tried"].values())
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert all(own.example in page for own in table.placements if own.entries)
