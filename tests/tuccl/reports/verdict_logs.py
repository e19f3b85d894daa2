"""Logs of verdicts as the executor writes them, for the tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "tuccl-verdicts-node1-77-00c0ffee.jsonl"
START_MS = 1_767_323_045_000
"""2026-01-02 03:04:05 UTC."""


def verdict(minute: int, *, ran: int = 0, runs: int = 0, **other: Any) -> dict[str, Any]:
    """Return a verdict on all_reduces of 64 KB of 8 ranks, of which the table's take 30 us."""
    kind = "stays" if ran == runs else ("left_out" if runs else "taken_back")
    return {
        "version": 1,
        "time_ms": START_MS + 60_000 * minute,
        "host": "node1",
        "process": 77,
        "communicator": "000000000000abcd",
        "ranks": 8,
        "nodes": 2,
        "ranks_per_node": 4,
        "table": "0000f00d",
        "call": 100 * minute,
        "operation": "all_reduce",
        "bytes": 65536,
        "verdict": kind,
        "ran": ran,
        "runs": runs,
        "choices": [{"name": "table", "us": 30.0}, {"name": "nccl", "us": 28.0}],
        **other,
    }


def write_log(folder: Path, *verdicts: Mapping[str, Any], name: str = NAME) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(each) + "\n" for each in verdicts))
    return path


def two_keys(folder: Path) -> Path:
    """Write 41 verdicts: all_reduce changes in 40 of them, reduce_scatter stays."""
    changes = [verdict(i, ran=i % 2, runs=1 - i % 2) for i in range(40)]
    other = verdict(
        50,
        operation="reduce_scatter",
        bytes=1000,
        choices=[
            {"name": "table", "us": 12345.678},
            {"name": "nccl", "us": None},
            {"name": "ring LL128 ch16", "us": 13000},
        ],
    )
    return write_log(folder, *changes, other)
