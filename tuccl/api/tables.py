"""Tables: read them, and look up what a job runs for a call, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lookup_tables import table as core
from lookup_tables.bundle_layout import MAGIC
from lookup_tables.bundles.bundle import Bundle, BundleEntry, load_bundle
from lookup_tables.confirmation import Confirmation
from lookup_tables.lookup import lookup as core_lookup
from lookup_tables.provenance import Provenance
from lookup_tables.table import BuiltinConfig, Operation, ScheduleConfig, Shape
from tuccl.errors import UsageError
from tuccl.models.figures import communicator_shape
from tuccl.quantities import parse_operation, parse_size
from tuccl.reports.choice_text import (
    OWN_CHOICE,
    UNDER_PROFILE,
    describe_builtin,
    describe_schedule,
)
from tuccl.reports.entries import entries_of, entry_figures
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.explanation import reason
from tuccl.reports.finished_run import (
    FinishedRun,
    current_run,
    read_machine,
    read_table_file,
)
from tuccl.reports.job_gains import Obstacle, gains_of, obstacle_to
from tuccl.reports.keys import Runner, frame_of
from tuccl.runtime import has_executor
from tuccl.shipping.shipped_directory import TABLE_NAME

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = "unknown"
"""`Table.times` of a bundle, which does not record how its times were taken."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The winner for calls of one operation, range of sizes and communicator."""

    operation: str
    min_bytes: int
    max_bytes: int
    """Largest size, inclusive as `min_bytes` is."""
    ranks: int
    nodes: int
    builtin: BuiltinConfig | None
    """The best of NCCL's own settings, which the plugin chooses; None: NCCL's own choice."""
    schedule: ScheduleConfig | None
    """The schedule that won; None: no schedule did."""
    runs: str
    """The winner, as `ring LL128 ch16`, or the schedule's name with its parameters."""
    stock_us: float
    """Stock NCCL's time."""
    time_us: float | None
    """The winner's time; None: a bundle does not keep that of schedules."""
    builtin_us: float | None
    """Time of `builtin`."""
    confirmation: Confirmation | None = None
    """Evidence that the winner is faster; None: a bundle has none."""
    provenance: Provenance | None = None
    """Backend and versions that took the times; None: a bundle has none."""


@dataclass(frozen=True, slots=True)
class Call:
    """The configuration that a job on this installation runs for a call, and the reason."""

    operation: str
    size_bytes: int
    ranks: int
    nodes: int
    runner: str
    """The part that decides: `executor` by a schedule, `plugin` by a setting of NCCL's, or NCCL by
    itself, under the table's process profile (`profile`) or without one (`nccl`)."""
    runs: str
    """The configuration, as `ring LL128 ch16`."""
    why: str
    """The reason, a sentence."""
    entry: Entry | None
    """The entry that holds the call; None: there is none."""
    stock_us: float | None
    """Stock NCCL's time at the tuned size; None: not known."""
    time_us: float | None
    """The job's time; None: not known."""
    apart: str = ""
    """The schedule that won but that no job here runs, with the reason; empty: there is none."""

    @property
    def speedup(self) -> float | None:
        """Stock NCCL's time over the job's; None where either is not known."""
        return self.stock_us / self.time_us if self.stock_us and self.time_us else None


@dataclass(frozen=True)
class Table:
    """The winning configurations of one machine, call by call."""

    machine: str
    """Name of the machine."""
    fingerprint: str
    """Fingerprint of the machine's topology."""
    entries: tuple[Entry, ...]
    """Entries, sorted by communicator, operation and size."""
    profile: Mapping[str, str]
    """Environment variables that every process of a job needs."""
    shapes: tuple[Shape, ...]
    """Communicators that the table is for: `ranks`, `nodes`, `ranks_per_node`."""
    times: str
    """Origin of the times: `measured`, `modelled`, on a `stand-in` for NCCL, or `unknown`."""
    calls: tuple[Call, ...] = ()
    """A job's choice here at each tuned size; empty for a table outside of a workspace."""
    speedup: float | None = None
    """Geometric mean of a job's speedups over `calls`; None without them."""
    caveats: tuple[str, ...] = ()
    """Reasons not to rely on the table, and why its schedules do not run here."""
    contents: core.Table | Bundle = field(repr=False, compare=False, kw_only=True)
    """The table as the Parquet file or the bundle has it."""
    run: FinishedRun | None = field(default=None, repr=False, compare=False)
    """The run that made the table; None for a table outside of a workspace."""

    @property
    def frame(self) -> pd.DataFrame:
        """The table as a pandas frame: of a workspace a row for each key, else for each entry.

        `stock_us` and `table_us` are times, `gain` their ratio with the bounds `low` and `high`;
        of a workspace `table_us` is the time of a job here, else that of the winner.
        """
        if self.run is not None:
            return gains_of(self.run).frame
        return frame_of(tuple(entries_of(self.contents)))


def read_table(path: str | Path) -> Table:
    """Read a table.

    Args:
        path: A workspace, of which the current run is read, a shipped directory, or a file: a
            table (Parquet) or a bundle.

    Raises:
        TableError: The file is damaged, of another version, or no table.
        WorkspaceError: The workspace has no finished run, or its files are damaged.
        UsageError: The path does not exist, or cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / TABLE_NAME).is_file():
            return table_of_run(current_run(path))
        path /= TABLE_NAME
    try:
        with path.open("rb") as file:
            is_bundle = path.is_file() and file.read(len(MAGIC)) == MAGIC
        if is_bundle:
            return _table(load_bundle(path), UNKNOWN)
        table = read_table_file(path)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; name a workspace, a shipped directory, a table "
            "or a bundle"
        ) from error
    return _table(table, evidence_of(table, "").value)


def lookup(
    table: Table | str | Path,
    operation: str,
    size: int | str,
    *,
    ranks: int | None = None,
    nodes: int | None = None,
) -> Call:
    """Look up what a job on this installation runs for a call, and why.

    Args:
        table: A table, or the path that it is read from.
        operation: Its name in nccl-tests.
        size: Bytes, or `64K`, `1M`; as nccl-tests counts them.
        ranks: Ranks of the communicator; None: those that the table is for.
        nodes: Nodes of the communicator; None: as many as in the table, or one.

    Raises:
        UsageError: The operation or size is unknown, or the communicator impossible.
        TableError, WorkspaceError: As for `read_table`.
    """
    found = table if isinstance(table, Table) else read_table(table)
    return _call(
        found, parse_operation(operation), parse_size(str(size)), _shape(found, ranks, nodes)
    )


def table_of_run(run: FinishedRun) -> Table:
    """Return the table of a finished run, with a job's choices and gains here."""
    gains = gains_of(run)
    plain = _table(run.table, gains.evidence.value, run)
    calls = tuple(_call(plain, gain.operation, gain.size_bytes, gain.shape) for gain in gains.keys)
    return replace(plain, calls=calls, speedup=gains.speedup, caveats=gains.caveats)


def _table(table: core.Table | Bundle, times: str, run: FinishedRun | None = None) -> Table:
    shapes = {entry.key.shape for entry in table.entries}
    if run is not None:  # It says so even where it has no entry.
        shapes = set(run.report.shapes.values()) or {_whole(run)}
    return Table(
        machine=table.topology_name,
        fingerprint=table.fingerprint,
        entries=tuple(_entry(entry, table) for entry in table.entries),
        profile=dict(table.profile),
        shapes=tuple(sorted(shapes)),
        times=times,
        contents=table,
        run=run,
    )


def _whole(run: FinishedRun) -> Shape:
    """Return the shape of the communicator of all GPUs."""
    return communicator_shape(read_machine(run.run))


def _entry(entry: core.Entry | BundleEntry, table: core.Table | Bundle) -> Entry:
    key, figures = entry.key, entry_figures(entry, table)
    return Entry(
        operation=key.operation.value,
        min_bytes=key.min_bytes,
        max_bytes=key.max_bytes,
        ranks=key.shape.ranks,
        nodes=key.shape.nodes,
        builtin=entry.builtin,
        schedule=entry.schedule,
        runs=figures.runs,
        stock_us=figures.stock_us,
        time_us=figures.table_us,
        builtin_us=entry.builtin_time_us if entry.builtin else None,
        confirmation=entry.confirmation if isinstance(entry, core.Entry) else None,
        provenance=figures.provenance,
    )


def _shape(table: Table, ranks: int | None, nodes: int | None) -> Shape:
    """Return the table's communicator that fits, or the one that ranks and nodes name."""
    shapes = table.shapes
    fitting = [
        shape for shape in shapes if ranks in {None, shape.ranks} and nodes in {None, shape.nodes}
    ]
    if len(fitting) == 1:
        return fitting[0]
    if ranks is None:
        known = " and ".join(_communicator(shape) for shape in shapes) or "no communicator"
        raise UsageError(f"the table of {table.machine} is for {known}: name ranks and nodes")
    nodes = 1 if nodes is None else nodes
    if not 1 <= nodes <= ranks:
        raise UsageError(f"{ranks} ranks on {nodes} nodes: give at least one node, and a rank each")
    return Shape(ranks, nodes, 0 if ranks % nodes else ranks // nodes)


def _call(table: Table, operation: Operation, size_bytes: int, shape: Shape) -> Call:
    entry: core.Entry | BundleEntry | None
    if isinstance(table.contents, Bundle):
        entry = table.contents.lookup(operation, size_bytes, shape)
    else:
        entry = core_lookup(table.contents, operation, size_bytes, shape)
    named = (operation.value, size_bytes, shape.ranks, shape.nodes)
    shown = None if entry is None else _entry(entry, table.contents)
    run = table.run
    if run is not None and shape in table.shapes:
        gains = gains_of(run)
        for gain in gains.keys:
            key = gain.key
            if key.shape != shape or key.operation is not operation:
                continue
            if key.min_bytes <= size_bytes <= key.max_bytes:
                return Call(
                    *named,
                    runner=gain.runner.value,
                    runs=gain.runs,
                    why=run.report.readable(reason(gain, gains.evidence)),
                    entry=shown,
                    stock_us=key.stock_us,
                    time_us=gain.table_us,
                    apart=_apart(entry, gain.obstacle, run.table),
                )
    if entry is None or shown is None:
        runner, runs = _left_to_nccl(table)
        why = _why_none(table, operation, size_bytes, shape)
        return Call(*named, runner.value, runs, why, None, None, None)
    return _stated(table, entry, shown, named)


def _stated(
    table: Table, entry: core.Entry | BundleEntry, shown: Entry, named: tuple[str, int, int, int]
) -> Call:
    """Return an entry's answer to a call, without the report of its run."""
    times = Evidence.MEASURED if table.times == UNKNOWN else Evidence(table.times)
    here = has_executor()
    obstacle = obstacle_to(entry, table.contents, times, has_executor=here)
    runner, runs = _left_to_nccl(table)
    time_us: float | None = None
    if entry.schedule is not None and obstacle is None:
        runner, runs, time_us = Runner.EXECUTOR, shown.runs, shown.time_us
    elif entry.builtin is not None:
        runner, runs, time_us = Runner.PLUGIN, describe_builtin(entry), shown.builtin_us
    why = f"the entry holds from {shown.min_bytes} to {shown.max_bytes} bytes"
    if time_us is not None:
        gain = shown.stock_us / time_us if time_us else 1.0
        why = (
            f"{runs} {times.takes} {time_us:.2f} us where stock NCCL {times.takes} "
            f"{shown.stock_us:.2f} us: {gain:.3f}x"
        )
    apart = _apart(entry, obstacle, table.contents)
    return Call(*named, runner.value, runs, why, shown, shown.stock_us, time_us, apart)


def _left_to_nccl(table: Table) -> tuple[Runner, str]:
    return (Runner.PROFILE, UNDER_PROFILE) if table.profile else (Runner.NCCL, OWN_CHOICE)


def _why_none(table: Table, operation: Operation, size_bytes: int, shape: Shape) -> str:
    if shape not in table.shapes:
        known = " and ".join(_communicator(tuned) for tuned in table.shapes) or "none"
        return f"no entry: the table is for {known}, not for {_communicator(shape)}"
    return f"no entry of the table holds {operation} of {size_bytes} bytes"


def _apart(
    entry: core.Entry | BundleEntry | None, obstacle: Obstacle | None, table: core.Table | Bundle
) -> str:
    if entry is None or obstacle is None:
        return ""
    return f"{describe_schedule(entry, table)}: {obstacle.sentence}"


def _communicator(shape: Shape) -> str:
    return f"{shape.ranks} ranks on {shape.nodes} node{'s' if shape.nodes > 1 else ''}"
