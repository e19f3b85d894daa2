"""`init --invariant`: on a model, and on workers over the stand-in of NCCL.

The stand-in's tree adds in the order of ranks and its ring does not; all_reduce has both,
reduce_scatter the ring alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.collective import Collective
from lookup_tables.lookup import MAX_SIZE_BYTES
from lookup_tables.store import table_from_parquet_bytes
from lookup_tables.table import NcclAlgorithm, Table
from probes.topology.json_form import topology_to_json
from synthesizer.programs.layout import Pattern, pattern_in
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.reports.report import Report, read_report
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

SIZES = ("--min-size", "16K", "--max-size", "64K")


def table_of(folder: Path) -> tuple[Table, Report]:
    run = Workspace(folder / "tuccl-workspace").current()
    table = table_from_parquet_bytes(run.table.read_bytes(), str(run.table))
    assert load_bundle(run.bundle).sums == table.sums
    return table, read_report(run)


def measured(
    ranks: int, operations: str, stand_ins: StandIns, run: Run, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """Tune nodes of one GPU each by NCCL's settings."""
    (folder / "machine.json").write_text(topology_to_json(cluster(ranks, 1, 1)))
    own = {name: value for name, value in os.environ.items() if "NCCL" not in name}
    variables = {
        **stand_ins.variables,
        "PYTHONPATH": str(stand_ins.libraries),
        "STAND_IN_GPUS": str(ranks),
        "STAND_IN_COUNTS_TIME": "1",
        "STAND_IN_CHANNELS": "1",
    }
    search = ("--cycles", "1", "--budget", "5s", "--operations", operations, *SIZES, *words)
    machine = ("--backend", "nccl", "--topology", "machine.json", "--fake-nodes")
    return run("init", *machine, *search, env=own | variables)


@pytest.mark.slow
def test_two_ranks_have_one_order_and_the_table_reaches_over_all_sizes(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    operations = "all_reduce,reduce_scatter,all_gather"
    done = measured(2, operations, stand_ins, run_tuccl, tmp_path, "--invariant")
    assert done.returncode == 0, done.stderr
    said = (
        "sums do not move: all_reduce and reduce_scatter on 2 ranks of 2 nodes add (0+1) at every"
    )
    assert said in done.stdout
    table, report = table_of(tmp_path)
    assert [(own.operation.value, own.order) for own in table.sums] == [
        ("all_reduce", "(0+1)"),
        ("reduce_scatter", "(0+1)"),
    ]
    for operation in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER):
        keys = [entry.key for entry in table.entries if entry.key.operation is operation]
        assert (keys[0].min_bytes, keys[-1].max_bytes) == (1, MAX_SIZE_BYTES)
    assert all(key.builtin for key in report.keys if key.operation.reduces)


@pytest.mark.slow
def test_a_setting_that_adds_in_another_order_never_wins(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    done = measured(3, "all_reduce", stand_ins, run_tuccl, tmp_path, "--invariant")
    assert done.returncode == 0, done.stderr
    table, _ = table_of(tmp_path)
    assert {entry.builtin and entry.builtin.algorithm for entry in table.entries} == {
        NcclAlgorithm.TREE
    }
    log = next((tmp_path / "tuccl-workspace" / "runs").glob("*/measurements.jsonl")).read_text()
    assert "its sums are not added in the order of ranks" in log


def test_an_operation_that_nothing_keeps_ends_the_run_in_one_line(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    done = measured(3, "reduce_scatter", stand_ins, run_tuccl, tmp_path, "--invariant")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if "--invariant" in line]
    assert "nothing here adds reduce_scatter of 3 ranks in the order (0+1+2) at every" in line
    assert "Traceback" not in done.stderr


def test_on_a_model_kernels_alone_run_sums_and_the_free_run_tells_their_cost(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    words = ("--topology", str(h200), "--operations", "all_reduce", "--min-size", "1G")
    ends = ("--max-size", "1G", "--cycles", "1")
    free = run_tuccl("init", *words, *ends)
    assert free.returncode == 0, free.stderr
    kept = run_tuccl("init", *words, *ends, "--invariant")
    assert kept.returncode == 0, kept.stderr
    table, report = table_of(tmp_path)
    (own,) = table.sums
    assert (own.operation.value, own.order) == ("all_reduce", "(0+1+2+3)")
    sums = [entry for entry in table.entries if entry.key.operation is Collective.ALL_REDUCE]
    programs = {stored.content_hash: stored.program for stored in table.schedules}
    for entry in sums:
        assert entry.schedule is not None
        assert pattern_in(programs[entry.schedule.schedule]) is not Pattern.NONE
        assert entry.schedule.protocol.value in ("LL", "LL128")
        assert entry.builtin is None
    assert report.free is not None
    assert report.free.keys == 1
    assert report.free.ratio >= 1.0
    assert f"of run {report.free.run}, whose sums may move (1 key," in kept.stdout
    explained = run_tuccl("explain", "all_reduce", "1G")
    assert "its sums do not move: (0+1+2+3) at every size" in explained.stdout
    obliged = [key for key in report.keys if key.is_obliged]
    assert obliged, "NCCL is faster for large calls in the model"
    assert "not proved faster, it runs since the table's sums must not move" in obliged[0].why
    shipped = run_tuccl("ship", "shipped")
    assert shipped.returncode == 0, shipped.stderr
    assert (
        "sums do not move: all_reduce on 4 ranks of 1 node" in run_tuccl("show", "shipped").stdout
    )
    doctor = run_tuccl("doctor", "shipped", "--json")
    found = {each["check"]: each["text"] for each in json.loads(doctor.stdout)["findings"]}
    assert "which is not preloaded: they are NCCL's" in found["sums"]
    manifest = json.loads((tmp_path / "shipped" / "tuccl-manifest.json").read_text())
    shape = {"ranks": 4, "nodes": 1, "ranks_per_node": 4}
    assert manifest["sums"] == [{"shape": shape, "operation": "all_reduce", "order": "(0+1+2+3)"}]
