"""What people see: a progress line on standard error, the tuned table on standard output.

A key without an entry runs what NCCL chooses, but under the table's process profile: that time is
shown, because it is what a job gets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import exp, log
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from lookup_tables.program_layout import MOST_RANKS, executor_serves
from lookup_tables.table import Entry, Table
from tuccl.durations import format_seconds
from tuccl.interrupts import raise_if_interrupted
from tuccl.report import FloorReport, KeyReport, ProfileReport, Report
from tuccl.sizes import format_size

_WITHOUT_MACHINE = ("simulated", "replay")
"""Backends whose seconds did not pass."""
_FORGONE = 3
"""Profiles that are named."""
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


def say_notes(notes: Iterable[str]) -> None:
    """What is to be noted, a line each, on standard error."""
    for note in notes:
        say(f"note: {note}")


def print_table(table: Table, report: Report) -> None:
    """The tuned table against the default, a row per tuned key, then the geometric means."""
    console = standard_output()
    entries = {(entry.key.operation.value, entry.tuned_bytes): entry for entry in table.entries}
    title = Text(f"{table.topology_name}: tuned against stock NCCL ({report.backend} backend)")
    shown = RichTable(title=title, title_justify="left", header_style="bold")
    shown.add_column("operation", no_wrap=True)
    shown.add_column("size", justify="right", no_wrap=True)
    alone = ("NCCL alone us",) if report.schedules else ()
    headings = ("default us", "tuned us", "speedup", *alone)
    rows = [_cells(key, entries.get((key.operation, key.size_bytes)), table) for key in report.keys]
    for number, heading in enumerate(headings):
        # A heading may be folded, a figure not.
        widest = max((len(cells[number]) for cells in rows), default=0)
        shown.add_column(heading, justify="right", min_width=max(widest, len("speedup")))
    shown.add_column("what runs", overflow="fold")
    before = ""
    for key, cells in zip(report.keys, rows, strict=True):
        if before not in {"", key.operation}:
            shown.add_section()
        before = key.operation
        figures = cells[: len(headings)]
        shown.add_row(key.operation, format_size(key.size_bytes), *figures, cells[-1])
    console.print(shown, crop=False)  # A terminal still narrower folds the lines.
    for line in summary_lines(table, report):
        console.print(line, highlight=False)


def _cells(key: KeyReport, entry: Entry | None, table: Table) -> Sequence[str]:
    """Times, speedup, NCCL alone, and what runs."""
    default_us = key.stock_us
    if entry is None:
        if not table.profile:
            return (f"{default_us:.1f}", "-", "-", "-", "NCCL's own choice: not beaten")
        under_us = key.profile_default_us
        gain = f"{default_us / under_us:.2f}x"
        return (f"{default_us:.1f}", f"{under_us:.1f}", gain, "-", "profile alone: not beaten")
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
    """Geometric means over all keys, why others have no entry, process profile, and the cost."""
    nccl_alone = _geomean([_gain(key, "builtin_time_us", table) for key in report.keys])
    gains = f"{nccl_alone:.3f}x"
    if report.schedules:
        with_executor = _geomean([_gain(key, "time_us", table) for key in report.keys])
        gains = (
            f"{with_executor:.3f}x with schedules, "
            f"{nccl_alone:.3f}x with stock NCCL and the plugin alone"
        )
    count = f"{len(table.entries)} of {len(report.keys)} keys tuned"
    lines = [f"{count}; geometric mean over all keys: {gains}", *_unserved_lines(table, nccl_alone)]
    if len(table.entries) < len(report.keys):
        lines.append(
            "not beaten: nothing was faster beyond the noise, so the key has no entry and NCCL "
            "chooses" + (" under the process profile, whose gain is shown" if table.profile else "")
        )
    weighed = ", ".join(f"{name} counts {weight:g}" for name, weight in report.weights.items())
    lines.append(
        f"process profile: {profile_text(table.profile)}" + (f" ({weighed})" if weighed else "")
    )
    floor = floor_lines(report.floor, weighed=bool(report.weights))
    return [*lines, *floor, *starts_lines(report.starts), *_cost_lines(report)]


def _unserved_lines(table: Table, nccl_alone: float) -> list[str]:
    """That nobody runs the schedules of a communicator which the executor does not serve."""
    shapes = {
        entry.key.shape
        for entry in table.entries
        if entry.schedule is not None and not executor_serves(entry.key.shape)
    }
    return [
        f"schedules of {shape.ranks} GPUs on {shape.nodes} node(s) are beyond this release's "
        f"executor (one node, up to {MOST_RANKS} GPUs): NCCL runs each key's best built-in "
        f"setting, {nccl_alone:.3f}x"
        for shape in sorted(shapes, key=lambda shape: (shape.ranks, shape.nodes))
    ]


def floor_lines(floor: FloorReport | None, *, weighed: bool = False) -> list[str]:
    """What the profile leaves the key that gets least, and which faster ones were forgone."""
    if floor is None:
        return []
    lines = []
    if floor.chosen is not None:
        leaves = "the process profile leaves every key at least"
        if not floor.chosen.holds:
            leaves = f"no profile keeps to --floor {floor.least:g}; the safest leaves"
        lines.append(f"{leaves} {_bounds(floor.chosen)}")
    average = "weighted average" if weighed else "average"
    for other in floor.forgone[:_FORGONE]:
        under = not other.holds and other.ratio < floor.least
        why = "ruled out by" if under else "less clear of"
        lines.append(
            f"{why} --floor {floor.least:g}: {profile_text(other.profile)}, "
            f"{other.speedup:.3f}x on {average}, leaves {_bounds(other)}"
        )
    more = len(floor.forgone) - _FORGONE
    return [*lines, f"and {more} more: see report.json"] if more > 0 else lines


def _bounds(profile: ProfileReport) -> str:
    """`0.974x at reduce_scatter 4K (0.970 to 0.978, 3 starts of each)`."""
    seen = "one start" if profile.starts == 1 else f"{profile.starts} starts of each"
    key = f"{profile.operation} {format_size(profile.size_bytes)}"
    return f"{profile.ratio:.3f}x at {key} ({profile.low:.3f} to {profile.high:.3f}, {seen})"


def profile_text(profile: Mapping[str, str]) -> str:
    """`NCCL_MIN_NCHANNELS=32`."""
    return " ".join(f"{name}={value}" for name, value in profile.items()) or "none needed"


def starts_lines(starts: int | None) -> list[str]:
    """Where starts of the workers differ, how many of them decided about entries."""
    if starts is None:
        return []
    line = "stock NCCL differs from start to start here: "
    if starts:
        return [f"{line}entries outlasted up to {starts} starts"]
    return [f"{line}no further starts could be had, so some entries may gain nothing in a job"]


def _cost_lines(report: Report) -> list[str]:
    if not report.measuring_s:
        return []
    took = "would take" if report.backend in _WITHOUT_MACHINE else "took"
    line = f"measuring {took} {format_seconds(report.measuring_s)} of the machine"
    if not report.graphs:
        line += ", calls one by one"
    if report.in_place:
        line += ", in place"
    if report.congestion_control:
        line += f", nodes faked over TCP with {report.congestion_control}"
    if report.share_gpus:
        line += ", faked nodes shared the GPUs"
    if report.budget_s is None:
        return [line]
    line += f", --budget {format_seconds(report.budget_s)}"
    if report.measuring_s > report.budget_s:
        line += (
            ": stock NCCL, a first look at each key, the confirmation and borders between entries "
            "are never left out"
        )
    return [line]


def _gain(key: KeyReport, column: str, table: Table) -> float:
    """Speedup of a key over stock NCCL; where no entry applies, that of the profile, if any."""
    for entry in table.entries:
        same = entry.key.operation.value == key.operation
        if same and entry.tuned_bytes == key.size_bytes:
            time_us = getattr(entry, column)
            if time_us is not None:
                return float(key.stock_us / time_us)
    return key.stock_us / key.profile_default_us if table.profile else 1.0


def _geomean(values: Sequence[float]) -> float:
    return exp(sum(log(value) for value in values) / len(values)) if values else 1.0


def standard_output() -> Console:
    """Where tables go: as wide as the terminal, or as a table wants where there is none.

    Open MPI gives its first rank a terminal of 80 columns, whoever reads what it writes.
    """
    if not sys.stdout.isatty():
        return Console(width=_WIDTH, highlight=False)
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return Console(width=_WIDTH, highlight=False, force_terminal=False)
    return Console(highlight=False)
