"""A finished run on standard output: a table for people, JSON for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tuccl import display
from tuccl.finished_run import FinishedRun
from tuccl.json_output import print_json

SCHEMA_VERSION = 1
"""Of the JSON of `init`, `tune`, `retune`, `table`, `explain`, `ship` and `verify`."""


def print_result(result: FinishedRun, as_json: bool) -> None:
    """What `init`, `tune` and `table` end with."""
    if as_json:
        print_json(result_as_dict(result), SCHEMA_VERSION)
    else:
        display.print_table(result.table, result.report)


def result_as_dict(result: FinishedRun) -> dict[str, Any]:
    """For machines."""
    table = result.table
    return {
        "topology": table.topology_name,
        "fingerprint": table.fingerprint,
        "profile": dict(table.profile),
        "weights": result.report.weights,
        "entries": [asdict(entry) for entry in table.entries],
        "keys": [key.model_dump() for key in result.report.keys],
        "table": str(result.run.table),
        "bundle": str(result.run.bundle),
    }
