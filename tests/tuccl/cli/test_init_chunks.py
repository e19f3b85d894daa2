"""`init` over a stand-in of NCCL that is fast with chunks of one size alone."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from lookup_tables.store import table_from_parquet_bytes
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.measuring.records.record import Record
from tuccl.measuring.records.record_file import read_record
from tuccl.workspace.runs import Workspace

Tuccl = Callable[..., CompletedProcess[str]]
CHUNK_BYTES = 128 << 10


@pytest.fixture
def tuccl(stand_ins: StandIns, run_tuccl: Run, tmp_path: Path) -> Tuccl:
    """The command on two GPUs, where a call takes 3 ms longer without such chunks."""
    (tmp_path / "machine.json").write_text(topology_to_json(cluster(1, 2, 1)))
    variables = {name: value for name, value in os.environ.items() if "NCCL" not in name}
    variables |= {
        **stand_ins.variables,
        "PYTHONPATH": str(stand_ins.libraries),
        "STAND_IN_GPUS": "2",
        "STAND_IN_COUNTS_TIME": "1",
        "STAND_IN_ALLOWS": "ring/LL ring/Simple",
        "STAND_IN_WANTS_CHUNK": str(CHUNK_BYTES),
    }
    return lambda *words, **more: run_tuccl(*words, env=variables | more)


def tuned(tuccl: Tuccl, folder: Path, *words: str, version: str) -> Record:
    keys = ("--operations", "all_reduce", "--min-size", "2M", "--max-size", "2M")
    search = ("--budget", "40s", "--cycles", "1", "--record", "run.parquet")
    machine = ("--backend", "nccl", "--topology", "machine.json")
    done = tuccl("init", *machine, *keys, *search, *words, STAND_IN_NCCL_VERSION=version)
    assert done.returncode == 0, done.stderr
    return read_record(folder / "run.parquet")


def chosen(folder: Path) -> list[BuiltinConfig | None]:
    path = Workspace(folder / "tuccl-workspace").current().table
    return [e.builtin for e in table_from_parquet_bytes(path.read_bytes(), str(path)).entries]


@pytest.mark.slow
def test_the_size_of_chunks_is_found_shown_shipped_and_taken_by_a_job(
    tuccl: Tuccl, tmp_path: Path
) -> None:
    record = tuned(tuccl, tmp_path, version="23007")
    assert all(table.asks_about_chunks for _, table in record.of_run.cost_tables if table)
    assert {row.config.chunk_bytes for row in record.rows} == {0, 32 << 10, 128 << 10}
    (found,) = chosen(tmp_path)
    assert found is not None
    assert (found.algorithm, found.protocol) == (NcclAlgorithm.RING, NcclProtocol.SIMPLE)
    assert found.chunk_bytes == CHUNK_BYTES
    assert "chunk128K" in tuccl("explain", "all_reduce", "2M").stdout

    assert tuccl("ship", "shipped").returncode == 0
    assert "chunk128K" in tuccl("show", "shipped").stdout
    # Jobs of NCCL 2.30 (ABI v6), 2.32.6 (v7), and of one that does not ask about chunks.
    for version, table_us in (("23007", 20.0), ("23206", 20.0), ("22809", 3000.0)):
        done = tuccl("bench", "shipped", "--rounds", "2", "--json", STAND_IN_NCCL_VERSION=version)
        ((key,),) = (table["keys"] for table in json.loads(done.stdout)["tables"])
        assert key["table_us"] == pytest.approx(table_us)
        assert key["stock_us"] == pytest.approx(3000.0)


@pytest.mark.slow
def test_an_older_nccl_has_no_size_of_chunks_to_search(tuccl: Tuccl, tmp_path: Path) -> None:
    record = tuned(tuccl, tmp_path, version="22809")
    assert {row.config.chunk_bytes for row in record.rows} == {0}
    assert chosen(tmp_path) == []
