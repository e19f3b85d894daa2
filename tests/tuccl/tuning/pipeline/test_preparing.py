"""Preparing a run from its options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.errors import UsageError
from tuccl.measuring.records.record_file import write_record
from tuccl.options.run_options import RunOptions
from tuccl.search.trials.events import Listener
from tuccl.tuning.pipeline import options_to_settings, preparing, tuning_run
from tuccl.workspace.runs import Workspace


def probe_nothing() -> NoReturn:
    raise AssertionError("the topology is given")


def identity(control: str, monkeypatch: pytest.MonkeyPatch, given: RunOptions) -> str:
    monkeypatch.setattr(options_to_settings, "congestion_control", lambda: control)
    prepared = preparing.prepare(given, probe_nothing)
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
        preparing.prepare(options, probe_nothing)
    two = preparing.prepare(replace(options, nodes=2), probe_nothing)
    assert two.request().laboratory.devices(two.shape.ranks) == two.shape.ranks // 2
    assert two.notes[-1].startswith("each GPU is used by 2 ranks, one of each faked node")


def test_congestion_control_does_not_matter_without_faked_nodes(
    h200: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = RunOptions(topology=str(h200))
    assert len({identity(control, monkeypatch, given) for control in ("bbr", "cubic")}) == 1


def test_the_note_on_congestion_control_comes_before_any_measurement(
    a100: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning_run, "initialize", stop)
    given = RunOptions(topology=str(a100), backend="sockets", nodes=2, fake_nodes=True)
    for control, notes in (("bbr", 1), ("cubic", 0)):
        monkeypatch.setattr(
            options_to_settings, "congestion_control", lambda control=control: control
        )
        prepared = preparing.prepare(given, probe_nothing)
        messages: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            tuning_run.run(prepared, Workspace(tmp_path), Listener(messages.append))
        assert "\n".join(messages).count("tcp_congestion_control is bbr") == notes
    assert not capsys.readouterr().err


def test_weights_apply_to_records_too(tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    given = RunOptions(topology=None, records=str(tmp_path / "r.parquet"), weights="all_reduce=3")
    prepared = preparing.prepare(given, probe_nothing)
    assert prepared.settings.weights == ((Collective.ALL_REDUCE, 3.0),)
