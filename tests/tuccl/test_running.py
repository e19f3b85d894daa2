"""From options to what a run is."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from tuccl import running
from tuccl.run_options import RunOptions


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


def test_it_is_nothing_to_a_run_without_them(h200: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = RunOptions(topology=str(h200))
    assert len({identity(control, monkeypatch, given) for control in ("bbr", "cubic")}) == 1
