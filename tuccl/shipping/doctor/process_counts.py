"""What the executor in a running process has counted, from its file for node_exporter.

The file is written by the executor (docs/reference/executor.md, "Counts of a process"), in a folder
in which other users may have files, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from probes.inputs.regular_file import read_regular_file, regular_status
from tuccl.shipping.doctor.findings import Finding, note, ok
from tuccl.shipping.doctor.running_process import RunningProcess

_VARIABLE = "TUCCL_METRICS"
_MOST_BYTES = 1_000_000
_LINE = re.compile(r"^(tuccl_\w+)\{([^{}]*)\} (\d+(?:\.\d+)?(?:e[+-]?\d{1,2})?)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([\w-]*)"')
_BY = {
    "schedule": "by schedules",
    "setting": "by the table's settings",
    "learned": "by what the job learned",
    "nccl": "by NCCL's own choice",
}


@dataclass(frozen=True, slots=True)
class CallCount:
    """Calls of one operation that ran one way."""

    operation: str
    path: str
    """`schedule`, `setting`, `learned` or `nccl`."""
    calls: int
    bytes: int
    """Of a rank's buffer, as NCCL counts."""


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """What the executor has counted in a process."""

    path: Path
    written_s: float
    """When, in seconds since 1970."""
    calls: tuple[CallCount, ...]
    communicators: dict[str, int]
    """Communicators that have started, by what became of them."""


def read_counts(process: RunningProcess) -> tuple[ProcessCounts | None, list[Finding]]:
    """Return what a process has counted, if it counts, and findings on it."""
    named = process.environment.get(_VARIABLE, "")
    if not named:
        return None, []
    own = Path("/proc") / str(process.number)
    try:
        folder = Path(named) if Path(named).is_absolute() else (own / "cwd").readlink() / named
        user = own.stat().st_uid
        pattern = re.compile(rf"tuccl-{process.number}-[0-9a-f]{{8}}\.prom")
        names = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
        # Those of an earlier process of this number may still be there: the newest counts.
        owned = [path for path in names if path.lstat().st_uid == user]
        if not owned:
            text = f"{_VARIABLE}={named} has no file of the process yet"
            return None, [note("counts", text)]
        path = max(owned, key=lambda each: each.lstat().st_mtime)
        if regular_status(path).st_size > _MOST_BYTES:
            text = f"{path} has more than 1 MB: it is none of the executor's"
            return None, [note("counts", text)]
        counts = _parse(path, read_regular_file(path)[:_MOST_BYTES].decode("utf-8", "replace"))
    except OSError as failure:
        text = f"the counts in {_VARIABLE}={named} cannot be read: {failure.strerror}"
        return None, [note("counts", text)]
    if counts is None:
        return None, [note("counts", f"{path} holds no counts of the executor")]
    return counts, list(_describe(counts))


def _parse(path: Path, text: str) -> ProcessCounts | None:
    written_s = None
    found: dict[tuple[str, str], dict[str, int]] = {}
    communicators = {}
    for name, labels, number in _LINE.findall(text):
        of = dict(_LABEL.findall(labels))
        value = float(number)
        if name == "tuccl_written_timestamp_seconds":
            written_s = value
        elif name in {"tuccl_calls_total", "tuccl_bytes_total"} and of.get("path") in _BY:
            key = of.get("operation", ""), of["path"]
            found.setdefault(key, {})[name] = int(value)
        elif name == "tuccl_communicators_total" and value > 0:
            communicators[of.get("outcome", "")] = int(value)
    latest = datetime.max.replace(tzinfo=UTC).timestamp()
    if written_s is None or written_s > latest:
        return None
    calls = tuple(
        CallCount(*key, each.get("tuccl_calls_total", 0), each.get("tuccl_bytes_total", 0))
        for key, each in found.items()
    )
    return ProcessCounts(path, written_s, calls, communicators)


def _describe(counts: ProcessCounts) -> Iterator[Finding]:
    until = datetime.fromtimestamp(counts.written_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    total = sum(each.calls for each in counts.calls)
    by_table = sum(each.calls for each in counts.calls if each.path in {"schedule", "setting"})
    yield ok(
        "counts",
        f"until {until} it made {_calls(total)} of NCCL, of which {by_table:,} ran by the table",
    )
    of_operation: Counter[str] = Counter()
    for each in counts.calls:
        of_operation[each.operation] += each.calls
    for operation, calls in of_operation.items():
        parts = ", ".join(
            f"{each.calls:,} {_BY[each.path]}"
            for each in counts.calls
            if each.operation == operation
        )
        yield ok("counts", f"{operation} {_calls(calls)}: {parts}")
    if counts.communicators:
        became = ", ".join(
            f"{number:,} {outcome.replace('_', ' ')}"
            for outcome, number in counts.communicators.items()
        )
        yield ok("counts", f"communicators: {became}")


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number:,} calls"
