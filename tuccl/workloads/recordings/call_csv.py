"""Reader of calls as CSV: a row for each call, or for a number of equal ones.

Columns `operation`, `size_bytes` (as nccl-tests counts it) and `ranks` are needed. `nodes`,
`siblings`, `datatype`, `reduction`, `in_place`, `graph`, `calls` and `us_per_call` may be there; an
empty cell is unknown, of `calls` and `siblings` 1. Calls are those of one rank.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.table import MAX_RANKS
from tuccl.errors import InputFileError, UsageError
from tuccl.quantities import parse_size
from tuccl.workloads.recordings.observed_calls import operation_named
from tuccl.workloads.recordings.recording_file import RecordingFile
from tuccl.workloads.workload import (
    Datatype,
    NotTuned,
    Reduction,
    SourceKind,
    Workload,
    WorkloadCall,
    WorkloadSource,
    sorted_calls,
)

_MOST_COUNT = 1e15
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _ranks(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 11 else 0
    if not 1 <= number <= MAX_RANKS:
        raise ValueError(text)
    return number


def _count(text: str) -> float:
    number = float(text)
    if not 0.0 < number < _MOST_COUNT:
        raise ValueError(text)
    return number


_COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "operation": operation_named,
    "size_bytes": parse_size,
    "ranks": _ranks,
    "nodes": _ranks,
    "siblings": _ranks,
    "datatype": Datatype,
    "reduction": Reduction,
    "in_place": _BOOLEANS.__getitem__,
    "graph": _BOOLEANS.__getitem__,
    "calls": _count,
    "us_per_call": _count,
}
"""The value of a cell by its column."""
NEEDED = ("operation", "size_bytes", "ranks")


class CallCsvReader:
    """Reads lists of calls."""

    def __init__(self) -> None:
        """Begin without a row."""
        self._calls: dict[WorkloadCall, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        """Number of calls and the sum of their times, by a call without these figures."""
        self._not_tuned: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

    def read(self, file: RecordingFile) -> None:
        """Read a file.

        Raises:
            InputFileError: It cannot be read, lacks a column, or has a row that is not understood.
        """
        lines = (line.decode("utf-8-sig", errors="replace") for line in file.lines())
        rows = csv.reader(lines)
        try:
            names = [name.strip().lower() for name in next(rows, [])]
            _require_columns(names, str(file.path))
            for cells in rows:
                if any(cell.strip() for cell in cells):
                    self._take(cells, names, f"{file.path} line {rows.line_num}")
        except csv.Error as error:
            raise InputFileError(
                f"{file.path} line {rows.line_num}: {error}; mend the CSV"
            ) from error

    def _take(self, cells: list[str], names: list[str], where: str) -> None:
        if len(cells) != len(names):
            raise InputFileError(
                f"{where}: {len(cells)} cells under {len(names)} columns; mend the row, or remove "
                "it if it is cut"
            )
        row = {
            name: _value(name, cell.strip(), where) for name, cell in zip(names, cells, strict=True)
        }
        count = row.pop("calls", None) or 1.0
        operation, size_bytes = row["operation"], row["size_bytes"]
        if size_bytes is None or operation is None:
            raise InputFileError(f"{where}: no operation or no size_bytes; mend the row")
        if operation not in COLLECTIVES:
            calls, in_all_bytes = self._not_tuned[operation]
            self._not_tuned[operation] = (calls + count, in_all_bytes + count * size_bytes)
            return
        if row["ranks"] is None or not max(row.get("nodes") or 1, 2) <= row["ranks"]:
            raise InputFileError(
                f"{where}: a communicator needs 2 ranks or more, and no more nodes"
            )
        time_us = row.pop("us_per_call", None)
        unknown = dict.fromkeys(("nodes", "datatype", "reduction", "in_place", "graph"))
        known: dict[str, Any] = {**unknown, **row, "operation": Collective.named(operation)}
        known["siblings"] = row.get("siblings") or 1
        timed = None if time_us is None else 1.0
        call = WorkloadCall(**known, calls_per_step=1.0, us_per_call=timed)
        calls, in_all_us = self._calls[call]
        self._calls[call] = (calls + count, in_all_us + count * (time_us or 0.0))

    def workload(self, files: tuple[str, ...], steps: float | None) -> Workload:
        """Return the workload of all files."""
        by = 1.0 if steps is None else steps
        return Workload(
            source=WorkloadSource(SourceKind.CSV, files),
            ranks=max((call.ranks for call in self._calls), default=None),
            nodes=None,
            steps=steps,
            calls=sorted_calls(
                replace(
                    call,
                    calls_per_step=count / by,
                    us_per_call=None if call.us_per_call is None else in_all_us / count,
                )
                for call, (count, in_all_us) in self._calls.items()
            ),
            not_tuned=tuple(
                NotTuned(operation=name, calls_per_step=calls / by, bytes_per_step=in_all / by)
                for name, (calls, in_all) in sorted(self._not_tuned.items())
            ),
        )


def _require_columns(names: list[str], where: str) -> None:
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise InputFileError(
            f"{where}: the first line has no column {missing[0]!r}; a CSV of calls needs "
            f"{', '.join(NEEDED)}"
        )
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown or len(set(names)) < len(names):
        wrong = f"column {unknown[0]!a:.60} is unknown" if unknown else "a column is there twice"
        raise InputFileError(f"{where}: {wrong}; use some of {', '.join(_COLUMNS)}")


def _value(name: str, text: str, where: str) -> Any:
    """Return the value of a cell; None: it is empty.

    Raises:
        InputFileError: It is not understood.
    """
    try:
        return _COLUMNS[name](text.lower()) if text else None
    except (ValueError, KeyError, UsageError) as error:
        raise InputFileError(f"{where}: {name} {text!a:.60} is not understood; mend it") from error
