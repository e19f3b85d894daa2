"""`tuccl init --backend executor` on faked nodes, over stand-ins of CUDA, NCCL and the executor."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.workspace.runs import Workspace

ACROSS = Shape(4, 2, 2)
FAKED = ("--fake-nodes", "--share-gpus", "--shapes", "whole")
SIZES = ("--min-size", "16K", "--max-size", "16K")
Tuccl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tuccl(stand_ins: StandIns, run_tuccl: Run) -> Tuccl:
    """The command on two GPUs that MPS shares, where NCCL's own choice is slow."""
    variables = {**stand_ins.slow_variables(2), "STAND_IN_MPS": "2"}
    return lambda *words: run_tuccl(*words, env=os.environ | variables)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two hosts of two GPUs and a NIC each."""
    path = tmp_path / "machine.json"
    path.write_text(topology_to_json(cluster(2, 2, 1)))
    return path


@pytest.mark.slow
def test_nodes_of_two_gpus_and_of_one_are_tuned_and_benched(tuccl: Tuccl, tmp_path: Path) -> None:
    machine = ("--topology", "shipped:a100-8gpu-8nic", "--nodes", "2", "--node-gpus", "2,1")
    words = (*FAKED, *SIZES, "--operations", "all_gather", "--plain", "--json")
    done = tuccl("init", "--backend", "executor", *machine, *words)
    assert done.returncode == 0, done.stderr
    assert "each GPU is used by up to 2 ranks" in done.stderr
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["schedule"] is not None, done.stdout
    run = Workspace(tmp_path / "tuccl-workspace").current()
    bundle = read_bundle(run.bundle.read_bytes(), "bundle")
    # 16K is no whole number of elements for three ranks: NCCL is asked about 16,368 bytes.
    assert bundle.lookup(Collective.ALL_GATHER, 16368, Shape(3, 2, 0)) is not None
    assert tuccl("ship", "shipped").returncode == 0
    benched = tuccl("bench", "shipped", "--fake-nodes", "2+1", "--share-gpus", "--rounds", "2")
    assert benched.returncode == 0, benched.stdout + benched.stderr
    few = tuccl("bench", "shipped", "--fake-nodes", "2+1", "--rounds", "2")
    assert few.returncode == 2
    assert "--fake-nodes 2+1 needs 3 GPUs, here are 2; --share-gpus lets each node" in few.stderr


@pytest.mark.slow
def test_plans_of_phases_win_are_shipped_and_run(
    tuccl: Tuccl, machine: Path, tmp_path: Path
) -> None:
    words = ("--topology", machine, *FAKED, *SIZES, "--operations", "all_gather", "--plain")
    done = tuccl("init", "--backend", "executor", *words, "--json")
    assert done.returncode == 0, done.stderr
    assert "each GPU is used by 2 ranks, one of each faked node" in done.stderr
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["schedule"] is not None, done.stdout
    run = Workspace(tmp_path / "tuccl-workspace").current()
    bundle = read_bundle(run.bundle.read_bytes(), "bundle")
    found = bundle.lookup(Collective.ALL_GATHER, 1 << 14, ACROSS)
    assert found is not None
    assert found.schedule is not None
    # Beside the entry's plan a bundle has those that jobs may learn.
    names = {schedule.content_hash: schedule.name for schedule in bundle.schedules}
    plan = names[entry["schedule"]["schedule"]].removeprefix("all_gather_")
    # Which plan wins depends on the load of the machine.
    assert plan.startswith(("rails_first", "recursive_doubling"))
    assert not list(run.root.glob("sketches/*")), "no schedule is made on a sketch"
    table = tuccl("table")
    assert "1 runs a TuCCL schedule" in table.stdout
    assert "Not included" not in table.stdout
    explained = tuccl("explain", "all_gather", "16K")
    assert explained.returncode == 0, explained.stdout + explained.stderr
    assert plan in explained.stdout
    shipped = tuccl("ship", "shipped")
    assert shipped.returncode == 0, shipped.stderr
    assert "export LD_PRELOAD" in (tmp_path / "shipped" / "tuccl.env").read_text()
    # Plans of phases have no XML: `bench` runs the program that jobs get.
    assert not list((tmp_path / "shipped").glob("schedules/*.xml"))
    benched = tuccl("bench", "shipped", "--fake-nodes", "2", "--share-gpus", "--rounds", "2")
    assert benched.returncode == 0, benched.stdout + benched.stderr
    row = next(line for line in benched.stdout.splitlines() if line.startswith("  16K"))
    assert plan in row
