"""Runs begun before options were fields of one type are read, and keep their identity.

`earlier_runs.json` has the options that run.json recorded for each command, and the run's identity.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from tuccl.cli.app import app
from tuccl.cli.commands import tune as commands
from tuccl.errors import UsageError
from tuccl.options.run_options import RunOptions
from tuccl.tuning import settings
from tuccl.tuning.pipeline import laboratory_options, preparing
from tuccl.tuning.pipeline.resuming import require_begun
from tuccl.tuning.pipeline.run_options import read_options
from tuccl.workspace.runs import RunRecord, Workspace

EARLIER = json.loads(Path(__file__).with_name("earlier_runs.json").read_text(encoding="utf-8"))
RUNS: list[dict[str, Any]] = EARLIER["runs"]


def probe_nothing() -> NoReturn:
    raise AssertionError("the machine is named")


@pytest.fixture(autouse=True)
def earlier_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "__version__", EARLIER["version"])
    monkeypatch.setattr(preparing, "version_here", lambda: EARLIER["nccl"])
    control = EARLIER["congestion_control"]
    monkeypatch.setattr(laboratory_options, "congestion_control", lambda: control)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["command"])
def test_recorded_options_give_the_same_run(run: dict[str, Any]) -> None:
    prepared = preparing.prepare(read_options(run["options"]), probe_nothing)
    assert prepared.settings.identity(prepared.topology) == run["identity"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["command"])
def test_the_same_command_gives_the_same_run(
    run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[RunOptions] = []

    def init(options: RunOptions, *_: object) -> int:
        requested.append(options)
        return 0

    monkeypatch.setattr(commands, "init", init)
    monkeypatch.setattr(commands, "tune", lambda command: init(command.options))
    assert CliRunner().invoke(app, run["command"].split()).exit_code == 0
    assert requested == [read_options(run["options"])]


def test_an_earlier_run_is_resumed_and_a_different_run_is_refused(tmp_path: Path) -> None:
    run = next(run for run in RUNS if run["command"].startswith("tune"))
    workspace = Workspace(tmp_path)
    begun = RunRecord(run["identity"], run["options"], False, "2026-01-01T00:00:00Z")
    with workspace.lock(run["identity"]) as place:
        place.write_record(begun)
    prepared = preparing.prepare(read_options(run["options"]), probe_nothing)
    options, topology = prepared.settings.options, prepared.topology
    require_begun(workspace, prepared.settings.identity(topology), options, topology)
    longer = replace(options, budget="20m")
    with pytest.raises(UsageError, match=r"differs in --budget \(90s there, 20m here\); repeat"):
        require_begun(workspace, "another", longer, topology)
