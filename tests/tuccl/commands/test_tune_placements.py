"""`tuccl tune` on a machine whose pairs differ by where their ranks sit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuccl.conftest import Run
from tests.tuccl.sketches.machines import cluster, hybrid_mesh
from tuccl.backends.simulated import SimulatedBackend
from tuccl.lookup_tables.bundles.bundle import load_bundle
from tuccl.lookup_tables.lookup import lookup_placed
from tuccl.lookup_tables.store import table_from_parquet_bytes
from tuccl.lookup_tables.table import BuiltinConfig, Entry, Operation, Shape, Table
from tuccl.models.placements import placements
from tuccl.probes.topology.json_form import topology_to_json
from tuccl.trials.config import Config, ProcessProfile, Task

PAIRS = Shape(2, 1, 2)
KEYS = ("--operations", "all_gather", "--min-size", "256K", "--max-size", "4M")
RUN = ("--shapes", "pairs", "--cycles", "1", *KEYS)


def tuned(folder: Path) -> Table:
    (path,) = folder.glob("tuccl-workspace/runs/*/table.parquet")
    return table_from_parquet_bytes(path.read_bytes(), str(path), lambda _: b"")


def call_of(builtin: BuiltinConfig, profile: ProcessProfile) -> Config:
    call = Config(builtin.algorithm.value, builtin.protocol.value, builtin.nchannels)
    return profile.applied_to(call)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "machine.json"
    path.write_text(topology_to_json(hybrid_mesh()), encoding="utf-8")
    return path


def test_pairs_get_entries_by_their_links_and_none_loses(
    run_tuccl: Run, machine: Path, tmp_path: Path
) -> None:
    done = run_tuccl("tune", "--topology", machine, *RUN)
    assert done.returncode == 0, done.stderr
    assert "entries by where ranks sit, which NCCL's estimates tell the plugin: " in done.stdout
    table = tuned(tmp_path)
    profile = ProcessProfile.of(tuple((name, int(v)) for name, v in table.profile.items()))
    model = SimulatedBackend(hybrid_mesh(), {}, seed=0, spread=0.0)

    def gain(entry: Entry, task: Task) -> float:
        assert entry.builtin is not None
        config = call_of(entry.builtin, profile)
        (time_us,) = model.measure(task, config, 0, 1).samples_us
        (default_us,) = model.measure(task, profile.default, 0, 1).samples_us
        return default_us / time_us

    classes = placements(hybrid_mesh(), PAIRS).classes
    found = []
    for own in classes:
        for entry in table.entries:
            key = entry.key
            task = Task(key.operation, entry.tuned_bytes, PAIRS, own.placement)
            assert gain(entry, task) >= 0.99, "an entry of any pair suits each"
        for size in (256 << 10, 1 << 20, 4 << 20):
            task = Task(Operation.ALL_GATHER, size, PAIRS, own.placement)
            estimate_us = model.ring_estimate_us(task)
            assert estimate_us is not None
            placed = lookup_placed(table.placements, task.operation, size, PAIRS, estimate_us)
            if placed is not None:
                found.append(gain(placed, task))
    assert len(found) > 1
    assert min(found) > 1.0, "a pair's own entry gains on it"
    entry = next(entry for own in table.placements for entry in own.entries)
    shown = run_tuccl("explain", "all_gather", entry.tuned_bytes, "--ranks", "2")
    assert "where NCCL's estimate is that of n0/gpu" in shown.stdout
    (path,) = tmp_path.glob("tuccl-workspace/runs/*/bundle.tuccl")
    assert sum(len(own.entries) for own in load_bundle(path).placements) == sum(
        len(own.entries) for own in table.placements
    )


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
