"""A run is resumed by the options that began it; others are refused, with what differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import JsonValue

from tuccl.errors import UsageError
from tuccl.tuning.pipeline import preparing
from tuccl.tuning.pipeline.options_to_settings import read_options
from tuccl.tuning.pipeline.resuming import require_begun
from tuccl.workspace.runs import RunRecord, Workspace


def probe_nothing() -> NoReturn:
    raise AssertionError("the machine is named")


def test_an_earlier_run_is_resumed_and_a_different_run_is_refused(tmp_path: Path) -> None:
    named: dict[str, JsonValue] = {
        "topology": "shipped:h200-4gpu",
        "schedules": False,
        "budget": "90s",
    }
    prepared = preparing.prepare(read_options(named), probe_nothing)
    options, topology = prepared.settings.options, prepared.topology
    identity = prepared.settings.identity(topology)
    workspace = Workspace(tmp_path)
    with workspace.lock(identity) as place:
        place.write_record(RunRecord(identity, named, False, "2026-01-01T00:00:00Z"))
    require_begun(workspace, identity, options, topology)
    longer = replace(options, budget="20m")
    with pytest.raises(UsageError, match=r"differs in --budget \(90s there, 20m here\); repeat"):
        require_begun(workspace, "another", longer, topology)
