"""`init` over a stand-in of NCCL that allows what a machine of a certain kind allows."""

import json
import os
from pathlib import Path

import pytest

from lookup_tables.store import table_from_parquet_bytes
from lookup_tables.table import NcclAlgorithm
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.search.trials.allowed_pairs import PLAIN_TCP
from tuccl.measuring.records.record import Record
from tuccl.measuring.records.record_file import read_record
from tuccl.workspace.runs import Workspace


def recorded(
    allowed: str, operations: str, stand_ins: StandIns, run: Run, folder: Path,
    sizes: tuple[str, str] = ("16K", "16K"), budget: str = "5s", **variables: str,
) -> Record:  # fmt: skip
    """Tune two GPUs on NVLink as two nodes, where NCCL allows this alone."""
    (folder / "machine.json").write_text(topology_to_json(cluster(2, 1, 1)))
    variables |= {
        **stand_ins.variables,
        "PYTHONPATH": str(stand_ins.libraries),
        "STAND_IN_GPUS": "2",
        "STAND_IN_COUNTS_TIME": "1",
        "STAND_IN_CHANNELS": "1",
        "STAND_IN_ALLOWS": allowed,
    }
    own = {name: value for name, value in os.environ.items() if "NCCL" not in name}
    words = ("--backend", "nccl", "--topology", "machine.json", "--fake-nodes", "--cycles", "1")
    search = ("--budget", budget, "--record", "run.parquet")
    keys = ("--min-size", sizes[0], "--max-size", sizes[1], "--operations", operations)
    done = run("init", *words, *search, *keys, env=own | variables)
    assert done.returncode == 0, done.stderr
    return read_record(folder / "run.parquet")


def refusals(record: Record) -> list[str]:
    return [row.failed for row in record.rows if "NCCL refused" in row.failed]


@pytest.mark.slow
def test_over_plain_tcp_nccl_refuses_nothing_that_is_tried(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    record = recorded(PLAIN_TCP, "all_reduce,all_gather", stand_ins, run_tuccl, tmp_path)
    assert refusals(record) == []
    tables = [table for _, table in record.of_run.cost_tables if table is not None]
    assert {table.names for table in tables} == {
        "tree LL, tree Simple, ring LL, ring Simple",
        "ring LL, ring Simple",
    }
    tried = {(row.config.algorithm, row.config.protocol) for row in record.rows}
    assert {("ring", "LL"), ("ring", "Simple"), ("tree", "LL")} <= tried


@pytest.mark.slow
def test_sizes_beside_a_switch_of_nccls_choice_are_tuned(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    record = recorded(
        "ring/LL ring/Simple", "all_reduce", stand_ins, run_tuccl, tmp_path, ("64K", "256K"),
        budget="20s", STAND_IN_LEAVES_LL_AT="150000",
    )  # fmt: skip
    # Sixteenths of an octave above 128 KB are 8 KB apart: 147,456 and 155,648 bytes.
    assert [task.size_bytes >> 10 for task in record.tasks] == [64, 144, 152, 256]
    change = "from ring LL to ring Simple between 144K and 152K"
    assert [own for _, own in record.of_run.added] == [change, change]


@pytest.mark.slow
def test_what_nccl_allows_beside_ring_and_tree_becomes_an_entry(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    record = recorded("nvls_tree/Simple", "all_reduce", stand_ins, run_tuccl, tmp_path)
    assert refusals(record) == []
    assert {row.config.algorithm for row in record.rows} == {"default", "nvls_tree"}
    path = Workspace(tmp_path / "tuccl-workspace").current().table
    (entry,) = table_from_parquet_bytes(path.read_bytes(), str(path)).entries
    assert entry.builtin is not None
    assert entry.builtin.algorithm is NcclAlgorithm.NVLS_TREE


@pytest.mark.long
def test_the_model_finds_nvls_where_it_was_measured_to_be_faster(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    """Four H100 take 4,337 us with NVLS and 4,511 us with their own choice, the ring."""
    (tmp_path / "hgx.xml").write_text(h200.read_text().replace(' multicast="0"', ""))
    words = ("--operations", "all_reduce", "--min-size", "1G", "--max-size", "1G", "--json")
    done = run_tuccl("tune", "--topology", "hgx.xml", "--backend", "simulated", *words)
    assert done.returncode == 0, done.stderr
    (key,) = json.loads(done.stdout)["keys"]
    assert key["runs"].startswith("nvls Simple")
    assert key["gain"]["ratio"] > 1.02
