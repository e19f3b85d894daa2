"""`tuccl init --shapes` from the command line: one table for several communicators of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.reports.test_schemas import check

WHOLE, NODE, RAIL = Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1)
SHAPES = ("--shapes", "whole,node,rail")
KEYS = ("--operations", "all_reduce", "--min-size", "64K", "--max-size", "64K")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two nodes of two GPUs, each GPU with a NIC."""
    path = tmp_path / "machine.json"
    path.write_text(topology_to_json(cluster(2, 2, 2)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_one_table_serves_the_communicators_of_a_job(run_inside: Run, machine: Path) -> None:
    """Without `--shapes` those of most jobs, which may as well be named."""
    done = run_inside("init", "--topology", machine, *KEYS, "--weights", "rail=2", "--json")
    assert done.returncode == 0, done.stderr
    assert "; node: 2 ranks on 1 node(s); rail: 2 ranks on 2 node(s)" in done.stderr
    document = check("table", done.stdout)
    assert list(document["shapes"]) == ["whole", "node", "rail"]
    assert document["weights"] == {"rail": 2.0}
    assert [Shape(**key["shape"]) for key in document["keys"]] == [WHOLE, NODE, RAIL]
    tuned = {Shape(**entry["key"]["shape"]) for entry in document["entries"]}
    assert tuned == {WHOLE, NODE, RAIL}, "schedules win all of them in the model"

    shown = run_inside("table")
    assert "whole, 4 ranks on 2 node(s): " in shown.stdout
    assert "(rail counts 2)" in shown.stdout
    part = run_inside("table", "--shape", "node", "--json")
    assert [Shape(**key["shape"]) for key in check("table", part.stdout)["keys"]] == [NODE]
    refused = run_inside("table", "--shape", "pairs")
    assert refused.returncode == 2
    assert "--shape 'pairs' was not tuned here, only whole, node, rail" in refused.stderr

    for words, shape in (
        ((), WHOLE),
        (("--ranks", "2"), NODE),
        (("--ranks", "2", "--nodes", "2"), RAIL),
    ):
        explained = run_inside("explain", "all_reduce", "64K", *words, "--json")
        found = check("explain", explained.stdout)
        assert Shape(**found["shape"]) == Shape(**found["decision"]["shape"]) == shape
        assert Shape(**found["entry"]["shape"]) == shape
    unknown = run_inside("explain", "all_reduce", "64K", "--ranks", "3")
    assert unknown.returncode == 2
    assert (
        "communicators of 3 ranks on 1 node(s) were not tuned in this workspace" in unknown.stderr
    )

    assert run_inside("ship", "shipped").returncode == 0
    bundle = load_bundle(next(Path(machine.parent, "shipped").glob("bundle-*.tuccl")))
    for shape in (WHOLE, NODE, RAIL):
        assert bundle.lookup(Collective.ALL_REDUCE, 64 << 10, shape) is not None
    assert bundle.lookup(Collective.ALL_REDUCE, 64 << 10, Shape(4, 1, 4)) is None

    again = run_inside("init", "--topology", machine, *KEYS, *SHAPES, "--weights", "rail=2")
    assert "nothing to do: " in again.stderr


@pytest.mark.slow
def test_worker_processes_measure_every_shape(run_inside: Run, machine: Path) -> None:
    words = ("--backend", "sockets", "--fake-nodes", "--budget", "2s", *KEYS, *SHAPES)
    done = run_inside("init", "--topology", machine, *words, "--json")
    assert done.returncode == 0, done.stderr
    document = check("table", done.stdout)
    keys = {Shape(**key["shape"]): key["stock_us"] for key in document["keys"]}
    assert keys.keys() == {WHOLE, NODE, RAIL}
    assert min(keys.values()) > 0
    (log,) = machine.parent.rglob("measurements.jsonl")
    lines = map(json.loads, log.read_bytes().splitlines())
    tasks = [line["task"] for line in lines if "task" in line]
    for shape in (WHOLE, NODE, RAIL):
        assert ["all_reduce", 65536, shape.ranks, shape.nodes, shape.ranks_per_node, ""] in tasks


def test_a_machine_without_such_communicators_is_told_at_once(run_inside: Run) -> None:
    done = run_inside("init", "--topology", "shipped:h200-4gpu", *KEYS, "--shapes", "rail")
    assert done.returncode == 2
    assert "--shapes rail: 4 GPUs on 1 node(s) have no such communicators" in done.stderr


@pytest.mark.slow
def test_one_table_serves_jobs_on_a_part_of_the_nodes(run_inside: Run, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(topology_to_json(cluster(4, 2, 2)), encoding="utf-8")
    shapes = ("--shapes", "whole,4x2,2x2", "--weights", "4x2=3")
    done = run_inside("init", "--topology", path, *KEYS, *shapes, "--json")
    assert done.returncode == 0, done.stderr
    document = check("table", done.stdout)
    tuned = {"whole": Shape(8, 4, 2), "4x2": WHOLE, "2x2": RAIL}
    assert {name: Shape(**shape) for name, shape in document["shapes"].items()} == tuned
    assert document["weights"] == {"4x2": 3.0}
    assert "4x2: 4 ranks on 2 node(s); 2x2: 2 ranks on 2 node(s)" in done.stderr
    explained = run_inside("explain", "all_reduce", "64K", "--ranks", "4", "--nodes", "2")
    assert explained.returncode == 0, explained.stdout
    assert run_inside("ship", "shipped").returncode == 0
    bundle = load_bundle(next(tmp_path.glob("shipped/bundle-*.tuccl")))
    for shape in tuned.values():
        assert bundle.lookup(Collective.ALL_REDUCE, 64 << 10, shape) is not None
