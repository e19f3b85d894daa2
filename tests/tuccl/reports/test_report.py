"""report.json is read as a run wrote it, or refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tuccl.errors import WorkspaceError
from tuccl.reports.report import REPORT_VERSION, read_report
from tuccl.workspace.runs import Run

COMPARISON: dict[str, Any] = {
    "config": "ring LL ch4",
    "time_us": 9.0,
    "reference_us": 10.0,
    "ratio": 1.111,
    "lower_bound": 1.05,
    "samples": 15,
    "spread": 0.01,
    "upper_bound": None,
    "confidence": 0.99,
    "reference": "stock",
    "estimator": "mean_over_starts",
    "starts": 3,
}
KEY: dict[str, Any] = {
    "operation": "all_gather",
    "size_bytes": 65536,
    "shape": {"ranks": 4, "nodes": 1, "ranks_per_node": 4},
    "min_bytes": 65536,
    "max_bytes": 65536,
    "stock_us": 10.0,
    "profile_default_us": 10.0,
    "builtin": COMPARISON,
    "schedule": None,
    "rejected": [],
    "configs_tried": 3,
    "repeats_measured": 30,
    "converged": True,
    "why": "",
}


def run_with(folder: Path, key: dict[str, Any]) -> Run:
    run = Run(folder)
    report = {
        "version": REPORT_VERSION,
        "backend": "simulated",
        "profile": {},
        "schedules": {},
        "keys": [key],
    }
    run.report.write_text(json.dumps(report), encoding="utf-8")
    return run


def test_a_report_is_read(tmp_path: Path) -> None:
    (key,) = read_report(run_with(tmp_path, KEY)).keys
    assert key.stock_us == 10.0


@pytest.mark.parametrize("time_us", [0.0, -1.0, 1e300])
@pytest.mark.parametrize("name", ["stock_us", "profile_default_us", "builtin"])
def test_a_time_that_no_call_takes_is_refused(tmp_path: Path, name: str, time_us: float) -> None:
    value = {**COMPARISON, "time_us": time_us} if name == "builtin" else time_us
    with pytest.raises(WorkspaceError, match=r"report\.json"):
        read_report(run_with(tmp_path, {**KEY, name: value}))


@pytest.mark.parametrize("ratio", [0.0, 1e300])
def test_a_ratio_that_no_profile_has_is_refused(tmp_path: Path, ratio: float) -> None:
    profile_ratio = {"ratio": ratio, "low": 0.9, "high": 1.1, "starts": 3}
    with pytest.raises(WorkspaceError, match=r"report\.json"):
        read_report(run_with(tmp_path, {**KEY, "profile_ratio": profile_ratio}))
