"""A shipped directory on standard output: a row per entry, then a summary of the table."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from lookup_tables.bundles.bundle import BundleEntry
from lookup_tables.table import Entry, Shape
from probes.inputs.printable import printable
from tuccl.reports.choice_text import describe_builtin, describe_schedule, profile_text
from tuccl.reports.documents.shipped import ShowDocument, ShownEntry, ShownMachine
from tuccl.reports.evidence import Evidence, evidence_of, evidence_of_backend
from tuccl.reports.table_parts import TablePart, measured_nccl, parts_of, tuning_times
from tuccl.shipping.shipped_view import ShippedView
from tuccl.views.terminal.display import print_lines, standard_output
from tuccl.views.terminal.step_display import step_line
from tuccl.words.counts import count_of
from tuccl.words.sizes import format_size


def show_document(view: ShippedView) -> ShowDocument:
    """Return a shipped directory as the document of `tuccl show --json`."""
    bundle, table, manifest = view.bundle, view.table, view.manifest
    tuned = None if table is None else tuning_times(table)
    entries = [*_entries(view)]
    parts = () if table is None else parts_of(table)
    size = None if manifest is None else manifest.machine
    return ShowDocument(
        directory=str(view.directory),
        topology=bundle.topology_name,
        fingerprint=bundle.fingerprint,
        machine=None if size is None else ShownMachine(gpus=size.gpus, nodes=size.nodes),
        gpu_models=list(bundle.gpu_models),
        tuccl=None if manifest is None else manifest.tuccl,
        nccl=None if table is None else measured_nccl(table) or None,
        times=_times(view, parts),
        tuned_from=None if tuned is None else tuned[0],
        tuned_to=None if tuned is None else tuned[1],
        bundle_crc=f"{bundle.crc:08x}",
        profile=dict(bundle.profile),
        step=None if manifest is None else manifest.step,
        shapes=sorted({entry.shape for entry in entries}),
        parts=list(parts),
        entries=entries,
        files=[] if manifest is None else [file.path for file in manifest.files],
        problems=list(view.problems),
    )


def _times(view: ShippedView, parts: tuple[TablePart, ...]) -> Evidence | None:
    if view.table is None or any(part.times is None for part in parts) or not parts:
        return None
    return evidence_of(view.table, "")


def _entries(view: ShippedView) -> Iterator[ShownEntry]:
    """Yield the entries of shapes, then those by where ranks sit."""
    bundle, table = view.bundle, view.table
    if table is not None:
        for entry in table.entries:
            yield _entry(entry, view)
        for own in table.placements:
            for entry in own.entries:
                yield _entry(entry, view, own.example)
        return
    for known in bundle.entries:
        yield _entry(known, view)
    for alike in bundle.placements:
        line = alike.line
        told = f"an estimate of {line.latency_us:.4g} us and {line.us_per_byte:.4g} us per byte"
        for known in alike.entries:
            yield _entry(known, view, told)


def _entry(
    entry: Entry | BundleEntry, view: ShippedView, placement: str | None = None
) -> ShownEntry:
    time_us: float | None
    times = confirmation = None
    if isinstance(entry, Entry):
        time_us, confirmation = entry.time_us, entry.confirmation
        if entry.provenance is not None:
            times = evidence_of_backend(entry.provenance.backend)
    else:
        time_us = entry.builtin_time_us if entry.schedule is None else None
    won = describe_builtin(entry)
    if entry.schedule is not None:
        won = describe_schedule(entry, view.bundle)
    return ShownEntry(
        operation=entry.key.operation,
        shape=entry.key.shape,
        placement=placement,
        min_bytes=entry.key.min_bytes,
        max_bytes=entry.key.max_bytes,
        runs=won,
        builtin=describe_builtin(entry),
        stock_us=entry.default_time_us,
        time_us=time_us,
        speedup=entry.default_time_us / time_us if time_us else None,
        low=None if confirmation is None else confirmation.low,
        high=None if confirmation is None else confirmation.high,
        times=times,
    )


def print_shipped(shown: ShowDocument, *, lost_profile: bool = False) -> None:
    """Print the entries, then the summary.

    Args:
        shown: The table.
        lost_profile: Whether the process profile of its times is left out.
    """
    if shown.entries:
        standard_output().print(_rows(shown), crop=False)
    print_lines(summary_lines(shown, lost_profile=lost_profile))


def _rows(shown: ShowDocument) -> RichTable:
    rows = RichTable(
        title=Text(f"{printable(shown.topology)}: entries of the table, times in us"),
        title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    rows.add_column("operation", no_wrap=True)
    placed = any(entry.placement for entry in shown.entries)
    for heading in ("ranks", "nodes", "from", "below", "stock", "table", "speedup"):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_column("times", no_wrap=True)
    rows.add_column("what runs", overflow="fold")
    if placed:
        rows.add_column("on communicators like", overflow="fold")
    for entry in shown.entries:
        rows.add_row(
            entry.operation.value,
            str(entry.shape.ranks),
            str(entry.shape.nodes),
            format_size(entry.min_bytes),
            format_size(entry.max_bytes + 1),
            f"{entry.stock_us:.1f}",
            "-" if entry.time_us is None else f"{entry.time_us:.1f}",
            "-" if entry.speedup is None else f"{entry.speedup:.2f}x",
            "unknown" if entry.times is None else entry.times.value,
            printable(entry.runs),
            *([printable(entry.placement or "any")] if placed else []),
        )
    return rows


def summary_lines(shown: ShowDocument, *, lost_profile: bool = False) -> list[str]:
    """Return lines on the machine, the origin of the table, and problems of the directory."""
    return [
        *_table_lines(shown, lost_profile),
        *(f"problem: {problem}" for problem in shown.problems),
    ]


def _table_lines(shown: ShowDocument, lost_profile: bool) -> Iterator[str]:
    machine = shown.machine
    size = ""
    if machine is not None:
        size = f", {count_of(machine.gpus, 'GPU')} on {count_of(machine.nodes, 'node')}"
    models = f" ({', '.join(shown.gpu_models)})" if shown.gpu_models else ""
    yield (
        f"machine: {printable(shown.topology)}{size}{models}, fingerprint "
        f"{printable(shown.fingerprint)}"
    )
    yield f"table: {shown.bundle_crc}, {count_of(len(shown.entries), 'entry', 'entries')}"
    yield f"communicators: {'; '.join(map(_shape, shown.shapes)) or 'none'}"
    yield f"NCCL: {shown.nccl or 'none was measured, or the table does not say which'}"
    for part in shown.parts:
        yield _part_line(part)
    if shown.times is not None and shown.times.caveat:
        yield shown.times.caveat
    if shown.tuned_from is not None and shown.tuned_to is not None:
        yield f"tuned: {printable(shown.tuned_from)} to {printable(shown.tuned_to)}"
    if shown.tuccl is not None:
        yield f"shipped by TuCCL {printable(shown.tuccl)}"
    profile = {printable(name): printable(value) for name, value in shown.profile.items()}
    yield f"process profile: {'left out' if lost_profile else profile_text(profile)}"
    if shown.step is not None:
        yield step_line(shown.step, shown.times)


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
