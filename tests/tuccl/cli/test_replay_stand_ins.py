"""Several shapes measured by workers over stand-ins, recorded, and shown where there is no GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lookup_tables.table import Shape
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.cli.test_replay_shapes import choices, measured
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.views.page.reported import seen

WHOLE, NODE, RAIL = Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1)
SEARCH = ("--budget", "1s", "--cycles", "1")
KEYS = ("--operations", "all_gather", "--min-size", "16K", "--max-size", "16K", "--plain")
FAKED = ("--fake-nodes", "--shapes", "whole,node,rail")


@pytest.fixture
def recorded(stand_ins: StandIns, run_tuccl: Run, tmp_path: Path) -> Path:
    """The record of a run on four GPUs as two nodes, where NCCL's own choice is slow."""
    machine = tmp_path / "machine.json"
    machine.write_text(topology_to_json(cluster(2, 2, 2)), encoding="utf-8")
    variables = stand_ins.slow_variables(4)
    words = ("--backend", "executor", "--topology", machine, *FAKED, *KEYS, *SEARCH)
    to = ("--record", "run.parquet", "--workspace", "first")
    done = run_tuccl("init", *words, *to, env=os.environ | variables)
    assert done.returncode == 0, done.stderr
    machine.unlink()
    return tmp_path / "run.parquet"


@pytest.mark.slow
def test_a_run_of_several_shapes_is_shown_elsewhere(
    run_tuccl: Run, recorded: Path, tmp_path: Path
) -> None:
    done = run_tuccl("init", "--backend", "replay", "--records", recorded, *SEARCH)
    assert done.returncode == 0, done.stderr
    assert "the recorded search is repeated step by step" in done.stderr
    assert "nodes faked over TCP" in done.stdout
    here = tmp_path / "tuccl-workspace"
    assert choices(here) == choices(tmp_path / "first")
    assert measured(here) == measured(tmp_path / "first")
    keys = json.loads(run_tuccl("table", "--json").stdout)["keys"]
    assert [Shape(**key["shape"]) for key in keys] == [WHOLE, NODE, RAIL]

    assert run_tuccl("report").returncode == 0
    page = " ".join(seen((tmp_path / "tuccl-report.html").read_text()).texts)
    assert "executor, measured, from a record" in page
    assert "nodes faked over TCP" in page
    for name in (
        "whole, 4 ranks on 2 nodes",
        "node, 2 ranks on 1 node",
        "rail, 2 ranks on 2 nodes",
    ):
        assert page.count(name) >= 3, "heat map, curves, and a row of the table"

    for words, shape in (((), WHOLE), (("--ranks", "2", "--nodes", "2"), RAIL)):
        explained = run_tuccl("explain", "all_gather", "16K", *words, "--json")
        assert explained.returncode in {0, 1}, "whether there is an entry depends on this host"
        assert Shape(**check("explain", explained.stdout)["shape"]) == shape

    assert run_tuccl("ship", "shipped").returncode == 0
    assert list(tmp_path.glob("shipped/bundle-*.tuccl"))
