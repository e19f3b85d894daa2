"""Shipped directories on standard output: their table, the tables they keep, two compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lookup_tables.table import Shape
from probes.inputs.messages import printable
from tuccl.quantities import count_of, format_size
from tuccl.reports.choice_text import profile_text
from tuccl.reports.entries import EntryFigures
from tuccl.reports.job_gains import Obstacle
from tuccl.reports.kept_sums import kept_sums_lines
from tuccl.reports.keys import Gain
from tuccl.reports.table_difference import DiffKey, DiffSide, SideFigures, TableDifference
from tuccl.reports.table_parts import TablePart
from tuccl.reports.workspace_runs import ListedRun, WorkspaceRuns
from tuccl.search.trials.shapes import shape_text
from tuccl.shipping.shipment import Shipped
from tuccl.shipping.shown_table import History, KeptVersion, ShownTable
from tuccl.views.terminal.display import print_lines
from tuccl.views.terminal.step_display import step_line
from tuccl.views.terminal.tables import print_rows

_LONGEST_LINE = 1000


def print_shipped(shown: ShownTable) -> None:
    """Print the entries of a shipped table, then a summary."""
    placed = any(entry.placement for entry in shown.entries)
    figures = (">ranks", ">nodes", ">from", ">below", ">stock", ">job", ">speedup", "times")
    columns = ("operation", *figures, "~what runs", *(["~on communicators like"] * placed))
    if shown.entries:
        print_rows(
            f"{printable(shown.topology)}: what a job runs for the entries, times in us",
            columns,
            (_entry_cells(entry)[: len(columns)] for entry in shown.entries),
        )
    print_lines(summary_lines(shown))


def _entry_cells(entry: EntryFigures) -> tuple[str, ...]:
    return (
        entry.operation.value,
        str(entry.shape.ranks),
        str(entry.shape.nodes),
        format_size(entry.min_bytes),
        format_size(entry.max_bytes + 1),
        f"{entry.stock_us:.1f}",
        _time(entry.table_us),
        _ratio(entry.gain, 2),
        "unknown" if entry.times is None else entry.times.value,
        printable(entry.runs),
        printable(entry.placement or "any"),
    )


def _time(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.1f}"


def _ratio(gain: Gain | float | None, digits: int = 3) -> str:
    ratio = gain.ratio if isinstance(gain, Gain) else gain
    return "-" if ratio is None else f"{ratio:.{digits}f}x"


def summary_lines(shown: ShownTable) -> Iterator[str]:
    """Yield lines on the machine, the origin of the table, and problems of the directory."""
    machine, size = shown.machine, ""
    if machine is not None:
        size = f", {count_of(machine.gpus, 'GPU')} on {count_of(machine.nodes, 'node')}"
    models = f" ({', '.join(shown.gpu_models)})" if shown.gpu_models else ""
    yield (
        f"machine: {printable(shown.topology)}{size}{models}, fingerprint "
        f"{printable(shown.fingerprint)}"
    )
    yield f"table: {shown.bundle_crc}, {count_of(len(shown.entries), 'entry', 'entries')}"
    yield from kept_sums_lines(shown.sums)
    yield f"communicators: {'; '.join(map(_shape, shown.shapes)) or 'none'}"
    yield f"NCCL: {shown.nccl or 'none was measured, or the table does not say which'}"
    for part in shown.parts:
        yield _part_line(part)
    if shown.times is not None and shown.times.caveat:
        yield shown.times.caveat
    if shown.assumed:
        yield printable(shown.assumed, _LONGEST_LINE)
    if shown.tuned_from is not None and shown.tuned_to is not None:
        yield f"tuned: {printable(shown.tuned_from)} to {printable(shown.tuned_to)}"
    if shown.tuccl is not None:
        yield f"shipped by TuCCL {printable(shown.tuccl)}"
    yield from apart_lines(shown.entries)
    profile = {printable(name): printable(value) for name, value in shown.profile.items()}
    yield f"process profile: {'left out' if shown.profile_left_out else profile_text(profile)}"
    if shown.step is not None:
        yield step_line(shown.step, shown.times)
    for problem in shown.problems:
        yield f"problem: {problem}"


def apart_lines(entries: Sequence[EntryFigures]) -> Iterator[str]:
    """Yield a line on the schedules of a table that no job runs, for each reason."""
    found: dict[Obstacle, list[float]] = {}
    for apart in filter(None, (entry.apart for entry in entries)):
        speedups = found.setdefault(apart.reason, [])
        speedups += [] if apart.speedup is None else [apart.speedup]
    for reason, speedups in found.items():
        gains = f" ({min(speedups):.2f}x to {max(speedups):.2f}x)" if speedups else ""
        yield f"Not included, because no job here runs them: schedules{gains}; {reason.sentence}"


def _part_line(part: TablePart) -> str:
    """Return `measured: 12 entries of all_reduce, ... (4 by schedules), 1K to 1G, ...`."""
    times = "times of unknown origin" if part.times is None else part.times.value
    how = ""
    if part.backend is not None:
        release = f"TuCCL {printable(part.tuccl)}, " if part.tuccl else ""
        record = ", from a record" if part.replayed else ""
        nccl = f", NCCL {part.nccl}" if part.nccl else ""
        how = f": {release}backend {part.backend}{nccl}{record}"
    won = f" ({part.schedules} by schedules)" if part.schedules else ""
    sizes = f"{format_size(part.min_bytes)} to below {format_size(part.max_bytes + 1)}"
    return (
        f"{times}: {count_of(part.entries, 'entry', 'entries')} of {part.operation.value}{won}, "
        f"{sizes}, {_shape(part.shape)}{how}"
    )


def _shape(shape: Shape) -> str:
    return f"{count_of(shape.ranks, 'rank')} on {count_of(shape.nodes, 'node')}"


def print_history(shown: History) -> None:
    """Print a row for each version, the newest last, then what is wrong with files."""
    if shown.versions:
        print_rows(
            f"{printable(str(shown.directory))}: tables that it keeps; jobs load the one with a "
            "star",
            (">version", "table", "shipped", "machine", "NCCL", ">gain", "~times", "~run"),
            map(_version_cells, shown.versions),
        )
    print_lines(
        f"problem: version {version.version}: {problem}"
        for version in shown.versions
        for problem in version.problems
    )
    print_lines(f"problem: {printable(problem, _LONGEST_LINE)}" for problem in shown.problems)


def _version_cells(version: KeptVersion) -> tuple[str, ...]:
    size = version.machine
    extent = "" if size is None else f", {count_of(size.gpus, 'GPU')}"
    entries = sum(part.entries for part in version.parts)
    operations = ", ".join(sorted({part.operation.value for part in version.parts}))
    return (
        f"{'* ' if version.current else ''}{version.version}",
        version.bundle_crc,
        printable(version.shipped_at),
        f"{printable(version.topology)}{extent} ({printable(version.fingerprint, 8)})",
        printable(version.nccl or "-"),
        _ratio(version.gain),
        version.times.value + (f": {entries} of {operations}" if entries else ""),
        "-" if version.run is None else printable(Path(version.run).name),
    )


def print_runs(shown: WorkspaceRuns) -> None:
    """Print a row for each run, the newest last, then what is wrong with their files."""
    figures = (">keys", ">entries", ">gain", "~times")
    print_rows(
        f"{printable(str(shown.workspace))}: runs; commands work with the one with a star",
        (">run", "begun", "machine", *figures),
        map(_run_cells, shown.runs),
    )
    problems = [f"run {run.name}: {run.problem}" for run in shown.runs if run.problem]
    problems += [shown.problem] if shown.problem else []
    print_lines(f"problem: {printable(problem, _LONGEST_LINE)}" for problem in problems)


def _run_cells(run: ListedRun) -> tuple[str, ...]:
    times = "damaged" if run.problem else "not finished"
    if run.times is not None:
        times = f"{run.times.value}, {run.backend}"
    return (
        f"{'* ' if run.current else ''}{printable(run.name)}",
        printable(run.begun_at or "-"),
        printable(run.topology or "-"),
        "-" if run.keys is None else str(run.keys),
        "-" if run.entries is None else str(run.entries),
        _ratio(run.gain),
        printable(times),
    )


def shipped_line(shipped: Shipped) -> str:
    """Return what was shipped: run, date, machine, entries and gain."""
    run = "" if shipped.run is None else f"run {Path(shipped.run).name}"
    when = "" if shipped.tuned_at is None else f" of {shipped.tuned_at}"
    entries = count_of(shipped.entries, "entry", "entries")
    gain = "" if shipped.gain is None else f", {shipped.gain:.3f}x for a job here"
    return printable(
        f"shipped {run}{when}: {entries} for {shipped.topology}{gain}; `tuccl runs` lists others",
        _LONGEST_LINE,
    )


def print_difference(shown: TableDifference) -> None:
    """Print machine, NCCL, profile and gain, then a row for each key that differs."""
    print_lines(_difference_lines(shown))
    changed = [key for key in shown.keys if not key.is_same]
    if changed:
        figures = (">size", ">A", ">B", ">B against A", "~differs", "~runs in A", "~runs in B")
        shapes = {key.shape for key in shown.keys}
        whole, placed = len(shapes) > 1, any(key.placement for key in changed)
        print_rows(
            "keys that differ, times in us",
            (
                "operation",
                *figures,
                *(["~communicator"] * whole),
                *(["~on communicators like"] * placed),
            ),
            (_difference_cells(key, whole=whole, placed=placed) for key in changed),
        )


def _difference_lines(shown: TableDifference) -> Iterator[str]:
    first, second = shown.first, shown.second
    yield f"A: {_side_text(first)}"
    yield f"B: {_side_text(second)}"
    if first.fingerprint != second.fingerprint:
        yield "the machines differ: each table's times are of its own"
    if first.nccl != second.nccl:
        yield f"NCCL: {_nccl(first)} in A, {_nccl(second)} in B"
    for name in sorted({*first.profile, *second.profile}):
        before, now = first.profile.get(name), second.profile.get(name)
        if before != now:
            yield (
                f"process profile: {printable(name)} is {printable(now or 'not set')} in B, "
                f"{printable(before or 'not set')} in A"
            )
    frame = shown.frame
    yield (
        f"keys: {shown.common} common, {sum(key.is_same for key in shown.keys)} of them not told "
        "apart; "
        f"{(~frame['in_second']).sum()} in A alone, {(~frame['in_first']).sum()} in B alone"
    )
    if (mean := shown.mean) is None:
        yield "no key has a time in both tables: nothing to compare"
    else:
        known = count_of(int(frame["ratio"].count()), "common key")
        bounds = f"{mean.low:.3f} to {mean.high:.3f}"
        yield f"B against A: {mean.ratio:.3f}x ({bounds}), geometric mean over {known}"


def _side_text(side: DiffSide) -> str:
    return (
        f"{printable(side.place)}: {printable(side.topology)}, fingerprint "
        f"{printable(side.fingerprint)}, NCCL {_nccl(side)}"
    )


def _nccl(side: DiffSide) -> str:
    return printable(side.nccl or "not measured")


def _difference_cells(key: DiffKey, *, whole: bool, placed: bool) -> tuple[str, ...]:
    sides: tuple[SideFigures | None, ...] = (key.first, key.second)
    differs = ", ".join(change.value for change in key.changes)
    if not key.is_common:
        differs = f"in {'B' if key.first is None else 'A'} alone"
    return (
        key.operation.value,
        format_size(key.size_bytes),
        *(_time(None if side is None else side.time_us) for side in sides),
        _ratio(key.gain),
        differs,
        *(printable(side.runs) if side else "-" for side in sides),
        *([shape_text(key.shape)] * whole),
        *([printable(key.placement or "any")] * placed),
    )
