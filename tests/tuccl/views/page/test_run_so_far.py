"""The figures of a run that is not finished, by its log."""

import json
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.conftest import TunedWorkspace
from tests.tuccl.views.page.unfinished import unfinish
from tuccl.errors import WorkspaceError
from tuccl.reports.report import read_report
from tuccl.views.page.so_far import read_so_far
from tuccl.workspace.measurement_file import Sums
from tuccl.workspace.runs import Workspace


def test_the_whole_log_has_the_keys_and_the_seconds_of_the_report(tuned: TunedWorkspace) -> None:
    (run,) = Workspace(tuned.root).runs()
    report, found = read_report(run), read_so_far(run, Path("here"))
    assert len(found.keys) == len(report.keys) == 6
    assert found.search.seconds == pytest.approx(report.measuring_s, rel=0.01)
    assert (found.backend, found.budget_s, found.evidence.value) == ("simulated", None, "modelled")
    assert found.machine is not None
    decided = {(key.operation, key.size_bytes): key for key in report.keys}
    for key in found.keys:
        own = decided[key.operation, key.size_bytes]
        assert key.stock.time_us == pytest.approx(own.stock_us, rel=0.02)
        assert own.schedule is not None
        setting_us = own.profile_default_us if own.builtin is None else own.builtin.time_us
        assert key.gain >= 0.97 * key.stock.time_us / setting_us
        assert key.best.time_us > 1.1 * own.schedule.time_us, "no job runs modelled schedules"
        assert key.tried > key.failed


def test_before_stock_nccl_is_timed_there_is_no_key(tuned: TunedWorkspace) -> None:
    run = unfinish(tuned.root, 2)
    found = read_so_far(run, tuned.root)
    assert (found.keys, found.gain, found.search.seconds) == ((), None, 0.0)
    run.measurements.unlink()
    assert read_so_far(run, tuned.root).keys == ()
    run.topology.unlink()
    assert read_so_far(run, tuned.root).machine is None


def test_some_keys_are_known_while_stock_nccl_is_timed(tuned: TunedWorkspace) -> None:
    run = unfinish(tuned.root, 6)
    record = json.loads((run.root / "run.json").read_text())
    record["options"]["budget"] = "2m"
    (run.root / "run.json").write_text(json.dumps(record))
    found = read_so_far(run, tuned.root)
    assert 0 < len(found.keys) < 6
    assert found.budget_s == 120.0
    assert {key.best_runs for key in found.keys} == {"stock NCCL"}
    assert found.gain == 1.0


def test_keys_of_several_shapes_have_the_shapes_names_and_borders_are_no_keys(
    tuned: TunedWorkspace,
) -> None:
    (run,) = Workspace(tuned.root).runs()
    first, source, *lines = run.measurements.read_text().splitlines()
    plain = [json.loads(line) for line in (first, source, *lines)]
    for values in plain:
        values.pop("sum")
        if "all_gather" in values.get("task", ()):
            values["task"][2:5] = 2, 1, 2
    border = {
        "task": ["all_reduce", 98304, 4, 1, 4, ""],
        "config": ["default", "", 0, 0, 0, 0, 0],
        "first": 0,
    }
    plain.append(border | {"samples_us": [5.0], "seconds": 0.1})
    sums = Sums()
    written = [sums.sealed(json.dumps(values).encode()) for values in plain]
    run.measurements.write_bytes(b"".join(written))
    found = read_so_far(run, tuned.root)
    assert {(key.operation, key.shape_name) for key in found.keys} == {
        (Collective.ALL_GATHER, "2 ranks on 1 node"),
        (Collective.ALL_REDUCE, "4 ranks on 1 node"),
    }
    assert len({step.shape_name for step in found.search.gains}) == 2
    assert len(found.keys) == 6, "a size between two keys is none"


def test_damage_is_named(tuned: TunedWorkspace) -> None:
    run = unfinish(tuned.root, 20)
    (run.schedules / "all_reduce" / "index.json").write_text("{")
    with pytest.raises(WorkspaceError, match=r"index\.json is damaged"):
        read_so_far(run, tuned.root)
    (run.root / "run.json").unlink()
    with pytest.raises(WorkspaceError, match=r"has no run\.json"):
        read_so_far(run, tuned.root)
