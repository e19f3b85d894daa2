"""From options to what a run is."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from lookup_tables.table import Operation
from tests.tuccl.records.tiny_grid import tiny_grid
from tuccl.commands import running
from tuccl.errors import UsageError
from tuccl.pipeline.run_options import RunOptions
from tuccl.records.record_file import write_record
from tuccl.workspace.runs import Workspace


def probed() -> NoReturn:
    raise AssertionError("the topology is given")


def identity(control: str, monkeypatch: pytest.MonkeyPatch, given: RunOptions) -> str:
    monkeypatch.setattr(running, "congestion_control", lambda: control)
    prepared = running.prepare(given.model_dump(mode="json"), probed)
    return prepared.settings.identity(prepared.topology)


def test_faked_nodes_under_another_congestion_control_are_another_run(
    a100: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = RunOptions(topology=str(a100), backend="sockets", nodes=2, fake_nodes=True)
    found = {identity(control, monkeypatch, given) for control in ("bbr", "cubic", "cubic")}
    assert len(found) == 2


def test_gpus_are_shared_by_two_nodes_at_least(a100: Path) -> None:
    options = RunOptions(topology=str(a100), backend="nccl", fake_nodes=True, share_gpus=True)
    with pytest.raises(UsageError, match="is one node; name --nodes 2 or more"):
        running.prepare(options.model_dump(mode="json"), probed)
    two = options.model_copy(update={"nodes": 2})
    assert running.prepare(two.model_dump(mode="json"), probed).request.share_gpus


def test_ranks_of_an_mpi_job_share_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is said before anything is probed or written."""

    def lead(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    options = RunOptions(topology=None, backend="nccl", fake_nodes=True, share_gpus=True, nodes=2)
    with pytest.raises(UsageError, match="within 4 tasks of MPI"):
        running.with_ranks(options.model_dump(mode="json"), lead, lead)


def test_it_is_nothing_to_a_run_without_them(h200: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = RunOptions(topology=str(h200))
    assert len({identity(control, monkeypatch, given) for control in ("bbr", "cubic")}) == 1


def test_the_note_on_it_is_said_before_anything_is_measured(
    a100: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "initialize", stop)
    given = RunOptions(topology=str(a100), backend="sockets", nodes=2, fake_nodes=True)
    for control, notes in (("bbr", 1), ("cubic", 0)):
        monkeypatch.setattr(running, "congestion_control", lambda control=control: control)
        prepared = running.prepare(given.model_dump(mode="json"), probed)
        with pytest.raises(KeyboardInterrupt):
            running.run(prepared, Workspace(tmp_path), None)
        assert capsys.readouterr().err.count("tcp_congestion_control is bbr") == notes


def test_weights_hold_for_records_too(tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    given = RunOptions(topology=None, records=str(tmp_path / "r.parquet"), weights="all_reduce=3")
    prepared = running.prepare(given.model_dump(mode="json"), probed)
    assert prepared.settings.weights == ((Operation.ALL_REDUCE, 3.0),)
