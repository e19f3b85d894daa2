"""Runs that are not finished, made from finished ones, for the tests of what follows them."""

import json
import os
from pathlib import Path

from tuccl.workspace.runs import Run, Workspace


def unfinish(workspace: Path, lines: int) -> Run:
    """Leave of a run what it had when its log had so many lines besides NCCL's tables."""
    (run,) = Workspace(workspace).runs()
    record = json.loads((run.root / "run.json").read_text())
    (run.root / "run.json").write_text(json.dumps(record | {"complete": False}))
    for path in (run.table, run.bundle, run.report, workspace / "current.json"):
        path.unlink()
    whole = run.measurements.read_bytes()
    (workspace / "whole-log").write_bytes(whole)
    run.measurements.write_bytes(_first(whole, lines))
    return run


def _first(log: bytes, lines: int) -> bytes:
    """Return the first lines of a log, and the lines of NCCL's cost tables among them."""
    own = log.splitlines(keepends=True)
    tables = sum(b'"costs"' in line for line in own)
    return b"".join(own[: lines + tables])


def go_on(workspace: Path, run: Run, lines: int) -> None:
    """Give the log so many of its lines, as if the run had gone on."""
    whole = (workspace / "whole-log").read_bytes()
    before = run.measurements.stat().st_mtime_ns
    run.measurements.write_bytes(_first(whole, lines))
    os.utime(run.measurements, ns=(before + 10**9, before + 10**9))
