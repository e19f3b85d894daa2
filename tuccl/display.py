"""What people see: a progress line on standard error, tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import exp, log
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from lookup_tables.table import Entry, Table
from tuccl.interrupts import raise_if_interrupted
from tuccl.report import KeyReport, Report
from tuccl.sizes import format_size

_WIDTH = 132
"""Columns that a table gets where standard output is not a terminal."""


@contextmanager
def progress_line() -> Iterator[Any]:
    """A `progress(stage, done, total)` that draws on a terminal and is silent elsewhere.

    It raises KeyboardInterrupt where Ctrl-C was dropped on the way.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", justify="left"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        lines: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            raise_if_interrupted()
            if stage not in lines:
                lines[stage] = bar.add_task(f"{stage:<22}", total=total)
            bar.update(lines[stage], completed=done)

        yield report


def say(text: str) -> None:
    """A line for people, on standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(text, markup=False)


def print_table(table: Table, report: Report) -> None:
    """The tuned table against the default, a row per tuned key, then the geometric means."""
    console = _stdout()
    entries = {(entry.key.operation.value, entry.tuned_bytes): entry for entry in table.entries}
    title = Text(f"{table.topology_name}: tuned against stock NCCL ({report.backend} backend)")
    shown = RichTable(title=title, title_justify="left", header_style="bold")
    shown.add_column("operation", no_wrap=True)
    for heading in ("size", "default us", "tuned us", "speedup", "NCCL alone us"):
        shown.add_column(heading, justify="right")
    shown.add_column("what runs", no_wrap=True)
    before = ""
    for key in report.keys:
        if before not in {"", key.operation}:
            shown.add_section()
        before = key.operation
        entry = entries.get((key.operation, key.size_bytes))
        shown.add_row(key.operation, format_size(key.size_bytes), *_cells(key, entry, table))
    console.print(shown)
    for line in summary_lines(table, report):
        console.print(line, highlight=False)


def _cells(key: KeyReport, entry: Entry | None, table: Table) -> Sequence[str]:
    default_us = key.stock_us
    if entry is None:
        return (f"{default_us:.1f}", "-", "-", "-", "NCCL's own choice")
    builtin = "-" if entry.builtin_time_us is None else f"{entry.builtin_time_us:.1f}"
    return (
        f"{default_us:.1f}",
        f"{entry.time_us:.1f}",
        f"{default_us / entry.time_us:.2f}x",
        builtin,
        describe_winner(entry, table),
    )


def describe_winner(entry: Entry, table: Table) -> str:
    """`ring LL128 ch16`, or the schedule's name with its parameters."""
    if entry.schedule is not None:
        names = {schedule.content_hash: schedule.name for schedule in table.schedules}
        config = entry.schedule
        return (
            f"{names[config.schedule]} {config.protocol.value} ch{config.nchannels} "
            f"th{config.nthreads} buf{format_size(config.buffer_bytes)}"
        )
    if entry.builtin is None:
        return "-"
    channels = f" ch{entry.builtin.nchannels}" if entry.builtin.nchannels else ""
    return f"{entry.builtin.algorithm.value} {entry.builtin.protocol.value}{channels}"


def summary_lines(table: Table, report: Report) -> list[str]:
    """Geometric means over all keys, and the process profile."""
    with_executor = [_gain(key, "time_us", table) for key in report.keys]
    nccl_alone = [_gain(key, "builtin_time_us", table) for key in report.keys]
    profile = " ".join(f"{name}={value}" for name, value in table.profile.items()) or "none needed"
    count = f"{len(table.entries)} of {len(report.keys)} keys tuned"
    gains = (
        f"{_geomean(with_executor):.3f}x with schedules, "
        f"{_geomean(nccl_alone):.3f}x with stock NCCL and the plugin alone"
    )
    return [f"{count}; geometric mean over all keys: {gains}", f"process profile: {profile}"]


def _gain(key: KeyReport, column: str, table: Table) -> float:
    """Speedup of a key over stock NCCL; where no entry applies, that of the profile alone."""
    for entry in table.entries:
        same = entry.key.operation.value == key.operation
        if same and entry.tuned_bytes == key.size_bytes:
            time_us = getattr(entry, column)
            if time_us is not None:
                return float(key.stock_us / time_us)
    return key.stock_us / key.profile_default_us


def _geomean(values: Sequence[float]) -> float:
    return exp(sum(log(value) for value in values) / len(values)) if values else 1.0


def _stdout() -> Console:
    width = None if sys.stdout.isatty() else _WIDTH
    return Console(width=width, highlight=False)
