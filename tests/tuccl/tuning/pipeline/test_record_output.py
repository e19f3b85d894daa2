"""`--record FILE`: an existing file is replaced only by the record of its own run."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuccl.conftest import Run
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.measuring.records.record_file import read_record, run_of_record, write_record
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

REPLAY = ("tune", "--records", "r.parquet")
TO = ("--record", "out.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_record(tmp_path / "r.parquet", tiny_grid())
    return tmp_path


@pytest.mark.parametrize("command", ["init", "tune"])
@pytest.mark.parametrize(
    "content", [b"op,bytes,t1\nallreduce,4096,8.7\n", b"PAR1 and then damaged PAR1"]
)
def test_a_file_that_is_no_record_is_refused_before_anything_is_probed(
    run_inside: Run, folder: Path, command: str, content: bytes
) -> None:
    (folder / "grid.csv").write_bytes(content)
    # No machine is given, so the command would begin by probing this host.
    done = run_inside(command, "--backend", "simulated", "--record", "grid.csv")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "--record grid.csv exists already" in done.stderr
    assert "add --force to replace it" in done.stderr
    assert (folder / "grid.csv").read_bytes() == content
    assert {path.name for path in folder.iterdir()} == {"grid.csv", "r.parquet"}


def test_a_table_is_parquet_and_no_record(run_inside: Run, folder: Path) -> None:
    assert run_inside(*REPLAY).returncode == 0
    table = Workspace(folder / "tuccl-workspace").current().table
    before = table.read_bytes()
    assert run_inside(*REPLAY, "--record", table).returncode == 2
    assert table.read_bytes() == before


def test_a_run_replaces_its_own_record_and_no_other(run_inside: Run, folder: Path) -> None:
    out = folder / "out.parquet"
    assert run_inside(*REPLAY, *TO).returncode == 0
    first = out.read_bytes()
    identity = run_of_record(out)
    assert identity == Workspace(folder / "tuccl-workspace").current().root.name
    assert read_record(out).run == identity
    # The same run again, finished here and begun anew elsewhere.
    for workspace in ("tuccl-workspace", "elsewhere"):
        done = run_inside(*REPLAY, *TO, "--workspace", workspace)
        assert done.returncode == 0, done.stderr
        assert out.read_bytes() == first
    refused = run_inside(*REPLAY, "--seed", "3", *TO, "--workspace", "third")
    assert refused.returncode == 2
    assert f"holds the record of run {identity}, this is run " in refused.stderr.splitlines()[-1]
    assert out.read_bytes() == first
    assert not (folder / "third").exists()
    assert run_inside(*REPLAY, "--seed", "3", *TO, "--force").returncode == 0
    assert run_of_record(out) not in {identity, ""}


def test_a_record_that_names_no_run_is_kept(run_inside: Run, folder: Path) -> None:
    write_record(folder / "out.parquet", tiny_grid())
    before = (folder / "out.parquet").read_bytes()
    done = run_inside(*REPLAY, *TO)
    assert done.returncode == 2
    assert "holds the record of a run that it does not name" in done.stderr
    assert (folder / "out.parquet").read_bytes() == before


def test_a_run_that_continues_replaces_its_shorter_record(run_inside: Run, folder: Path) -> None:
    assert run_inside(*REPLAY, *TO).returncode == 0
    whole = (folder / "out.parquet").read_bytes()
    record = read_record(folder / "out.parquet")
    shorter = record.rows[: len(record.rows) // 2]
    write_record(folder / "out.parquet", replace(record, rows=shorter))
    run = Workspace(folder / "tuccl-workspace").current()
    log = run.measurements.read_bytes()
    run.measurements.write_bytes(log[: len(log) // 2])
    run.table.unlink()
    done = run_inside(*REPLAY, *TO)
    assert done.returncode == 0, done.stderr
    assert (folder / "out.parquet").read_bytes() == whole


def test_an_empty_file_is_written_and_a_pipe_never(run_inside: Run, folder: Path) -> None:
    (folder / "out.parquet").touch()  # As mktemp creates it.
    assert run_inside(*REPLAY, *TO).returncode == 0
    assert read_record(folder / "out.parquet").rows
    os.mkfifo(folder / "pipe")
    for force in ((), ("--force",)):
        done = run_inside(*REPLAY, "--record", "pipe", *force)
        assert (done.returncode, "is a device or pipe" in done.stderr) == (2, True)
    assert (folder / "pipe").is_fifo()


@pytest.mark.parametrize("command", ["init", "tune"])
def test_force_alone_does_nothing_and_is_refused(
    run_inside: Run, folder: Path, command: str
) -> None:
    done = run_inside(command, "--records", "r.parquet", "--force")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "--force lets --record replace a file" in done.stderr
    assert not (folder / "tuccl-workspace").exists()


def test_force_does_not_replace_an_input(run_inside: Run, folder: Path) -> None:
    before = (folder / "r.parquet").read_bytes()
    done = run_inside(*REPLAY, "--record", "r.parquet", "--force")
    assert (done.returncode, "is read by this command" in done.stderr) == (2, True)
    assert (folder / "r.parquet").read_bytes() == before
