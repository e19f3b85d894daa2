"""The guard's verdicts on standard output: each key, then the last changes."""

from __future__ import annotations

from rich.console import Console

from tuccl.quantities import count_of, format_size
from tuccl.reports.verdicts import (
    JudgedKey,
    Verdict,
    VerdictHistory,
    last_changes,
    runs_words,
    time_text,
)
from tuccl.views.terminal.display import standard_output
from tuccl.views.terminal.tables import print_rows

_MOST_CHANGES = 20


def print_verdicts(found: VerdictHistory, console: Console | None = None) -> None:
    """Print what runs for each key, and when that changed.

    Args:
        found: The verdicts.
        console: Where it is printed; None: on standard output.
    """
    changed = sum(key.changes for key in found.keys)
    calls = ("operation", ">size", ">ranks", ">nodes")
    if found.keys:
        print_rows(
            "What the guard found in jobs: the last medians in us, and what runs",
            (*calls, ">verdicts", ">changes", ">table", ">nccl", "~runs"),
            map(_key_cells, found.keys),
            console=console,
        )
    if changed:
        print_rows(
            f"The last {min(changed, _MOST_CHANGES)} of {count_of(changed, 'change')}",
            ("time, UTC", *calls, "ran", "runs", "~medians in us"),
            (_change_cells(*each) for each in last_changes(found, _MOST_CHANGES)),
            console=console,
        )
    counts = f"{count_of(found.verdicts, 'verdict')} on {count_of(len(found.keys), 'key')}"
    files = count_of(len(found.files), "file")
    (console or standard_output()).print(f"{counts} in {files}: {count_of(changed, 'change')}")


def _us(median_us: float | None) -> str:
    return "-" if median_us is None else f"{median_us:.4g}"


def _calls_cells(key: JudgedKey) -> tuple[str, ...]:
    shape = key.shape
    return (
        key.operation.value, format_size(key.size_bytes), str(shape.ranks), str(shape.nodes)
    )  # fmt: skip


def _key_cells(key: JudgedKey) -> tuple[str, ...]:
    return (
        *_calls_cells(key),
        str(len(key.verdicts)),
        str(key.changes),
        _us(key.last_median_us("table")),
        _us(key.last_median_us("nccl")),
        runs_words(key),
    )


def _change_cells(key: JudgedKey, each: Verdict) -> tuple[str, ...]:
    known = [choice for choice in each.choices if choice.median_us is not None]
    return (
        time_text(each.time_ms).removesuffix(" UTC"),
        *_calls_cells(key),
        each.ran,
        each.runs,
        ", ".join(f"{choice.name} {_us(choice.median_us)}" for choice in known) or "-",
    )
