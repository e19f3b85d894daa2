"""The figures of a report: one table, or two that are compared; `tuccl report --json` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from lookup_tables.collective import Collective
from lookup_tables.provenance import SIMULATED, Provenance
from lookup_tables.table import Shape
from sketches.sketch import Sketch
from tuccl.errors import UsageError
from tuccl.quantities import count_of, format_seconds
from tuccl.reports.choice_text import profile_text
from tuccl.reports.evidence import Evidence
from tuccl.reports.keys import Gain, Runner, Verdict
from tuccl.reports.step_gain import StepGain
from tuccl.views.page.keys import ReportedKey, key_figures
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.search import SearchProgress, search_progress
from tuccl.views.page.sketches import SketchFigures, sketch_figures
from tuccl.views.page.timelines import ScheduleTimeline, simulated_timelines
from tuccl.views.terminal.table_display import placed_entries_lines, summary_lines
from tuccl.workspace.measurement_lines import Contents
from tuccl.workspace.measurement_log import read_history, read_log

_SAME_STOCK = 0.02
"""Mean difference of stock NCCL's times that is not worth a remark."""


@dataclass(frozen=True, slots=True)
class ShapeFigures:
    """The gain on communicators of one shape."""

    name: str
    shape: Shape
    keys: int
    speedup: float
    """Geometric mean over its keys of what a job here gains."""


@dataclass(frozen=True, slots=True)
class TableFigures:
    """A table: what it is of, what it gains, and what that rests on."""

    name: str
    """The place as the user named it."""
    shipped: bool
    """Whether the place is a shipped directory."""
    topology: str
    fingerprint: str
    times: Evidence
    replayed: bool
    """Whether the times come from a record."""
    nccl_version: str | None
    facts: Mapping[str, str]
    """Machine, versions, dates and place in words, by what they are; empty: unknown."""
    profile: Mapping[str, str]
    speedup: float
    """Geometric mean over all keys of what a job here gains."""
    speedup_with_all_schedules: float
    shapes: tuple[ShapeFigures, ...]
    """The communicator shapes, in the order of the keys, if there are several."""
    keys: tuple[ReportedKey, ...]
    """Keys whose entries hold wherever ranks sit."""
    placed: tuple[ReportedKey, ...]
    """Entries that hold for some communicators of a shape, and come before those of the shape."""
    step: StepGain | None
    """The gain of a step of the workload, if the table was tuned for one."""
    remarks: tuple[str, ...]
    """Sentences on gains, caveats, profile and cost."""

    @property
    def all_keys(self) -> tuple[ReportedKey, ...]:
        """The keys, then the entries by where ranks sit."""
        return (*self.keys, *self.placed)


@dataclass(frozen=True, slots=True)
class ComparedKey:
    """A key of both tables."""

    operation: Collective
    size_bytes: int
    shape: Shape
    first: ReportedKey
    second: ReportedKey
    ratio: float
    """A job's time with the first table over that with the second: above 1 the second is faster."""
    low: float | None
    """The ratio if each time is at the bound that is worse for the second."""
    high: float | None

    @property
    def verdict(self) -> Verdict:
        """Whether the bounds of both times tell the tables apart."""
        return Gain(self.ratio, self.low, self.high).verdict


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Two tables, key by key."""

    ratio: float
    """Geometric mean over the keys that both have."""
    keys: tuple[ComparedKey, ...]
    remarks: tuple[str, ...]
    """Reasons not to take the ratios at face value, and keys that only one table has."""


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """The figures of a report."""

    made_at: str
    """When the report was made: ISO 8601, UTC."""
    tables: tuple[TableFigures, ...]
    """One, or two that are compared."""
    search: SearchProgress | None = None
    """How the search went, if one table is shown whose place has measurements."""
    sketches: tuple[SketchFigures, ...] = ()
    """Connections that the sketches of the run keep and drop."""
    timelines: tuple[ScheduleTimeline, ...] = ()
    """Simulated calls of schedules that won."""
    comparison: TableComparison | None = None
    """The two tables key by key."""


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """`tuccl report --json`."""

    file: Path
    """Path of the page."""
    figures: ReportFigures


def report_figures(found: ReportedTable, sketches: Sequence[Sketch], made_at: str) -> ReportFigures:
    """Return the figures of a report on one table.

    Args:
        found: The table.
        sketches: Sketches of its run.
        made_at: Date of the report.

    Raises:
        WorkspaceError: The measurements of its run cannot be read.
    """
    table = table_figures(found, measurements(found))
    search = None
    if found.run is not None and found.report is not None:
        history = read_history(found.run.measurements, found.identity)
        names = {content: schedule.name for content, schedule in found.report.schedules.items()}
        search = search_progress(table.keys, history, names)
    return ReportFigures(
        made_at,
        (table,),
        search if search is not None and search.measurements else None,
        tuple(map(sketch_figures, sketches)),
        simulated_timelines(found, table.keys, sketches),
    )


def compared_figures(first: ReportedTable, second: ReportedTable, made_at: str) -> ReportFigures:
    """Return the figures of a report on two tables.

    Raises:
        UsageError: The tables have no key in common.
        WorkspaceError: The measurements of a run cannot be read.
    """
    tables = tuple(table_figures(found, measurements(found)) for found in (first, second))
    return ReportFigures(made_at, tables, comparison=compare(*tables))


def measurements(found: ReportedTable) -> Contents | None:
    """Return the measurements of a table's run, if the place has a run.

    Raises:
        WorkspaceError: They cannot be read.
    """
    return None if found.run is None else read_log(found.run.measurements, found.identity)


def table_figures(found: ReportedTable, samples: Contents | None) -> TableFigures:
    """Return the figures of a table.

    Args:
        found: The table.
        samples: The measurements of its run, if the place has them.
    """
    known = key_figures(found, samples)
    keys = tuple(key for key in known if not key.placement)
    provenance, report = found.provenance, found.report
    replayed = provenance is not None and provenance.replayed
    if report is not None:
        replayed = report.recorded_backend is not None
    if provenance is None and samples is not None and samples.source is not None:
        provenance = samples.source.provenance
    version = None if provenance is None else provenance.nccl_version
    return TableFigures(
        name=found.name,
        shipped=report is None,
        topology=found.table.topology_name,
        fingerprint=found.table.fingerprint,
        times=found.evidence,
        replayed=replayed,
        nccl_version=None if version is None else str(version),
        facts=_facts(found, provenance, replayed=replayed),
        profile=dict(found.table.profile),
        speedup=mean_gain([key.speedup for key in keys]),
        speedup_with_all_schedules=mean_gain(
            [key.speedup if key.schedule_speedup is None else key.schedule_speedup for key in keys]
        ),
        shapes=_shapes(keys),
        keys=keys,
        placed=tuple(key for key in known if key.placement),
        step=found.step,
        remarks=tuple(_remarks(found, keys)),
    )


def _facts(
    found: ReportedTable, provenance: Provenance | None, *, replayed: bool
) -> dict[str, str]:
    table, report = found.table, found.report
    details = "" if provenance is None else provenance.details
    backend = "" if found.provenance is None else found.provenance.backend
    conditions: Sequence[str] = ()
    measuring_s = 0.0
    if report is not None:
        backend, measuring_s = report.source, report.measuring_s
        conditions = report.laboratory.conditions()
    nccl = "" if provenance is None or not provenance.nccl_version else str(provenance.nccl_version)
    no_nccl = f"none ran: a model {details}" if backend == SIMULATED else "not stated"
    record = ", from a record" if replayed else ""
    return {
        "machine": table.topology_name,
        "fingerprint of its topology": table.fingerprint,
        "GPUs (PCI vendor:device)": ", ".join(table.gpu_models) or "unknown",
        "backend": f"{backend}, {found.evidence.value}{record}",
        "NCCL": nccl or no_nccl,
        "TuCCL that measured": (provenance.tuccl_version if provenance else "") or "not stated",
        "driver, CUDA, GPU": details if nccl else "",
        "measured under": ", ".join(conditions),
        "recorded": "" if report is None else report.recorded_at,
        "replayed" if replayed else "tuned": " to ".join(found.dates),
        "machine time of measuring": format_seconds(measuring_s) if measuring_s else "",
        "process profile": profile_text(table.profile),
        "read from": f"{found.name}{f', run {found.identity}' if found.identity else ''}",
    }


def compare(first: TableFigures, second: TableFigures) -> TableComparison:
    """Compare two tables.

    Raises:
        UsageError: They have no key in common.
    """
    others = {key.order: key for key in second.all_keys}
    keys = tuple(_compared(key, others[key.order]) for key in first.all_keys if key.order in others)
    if not keys:
        raise UsageError(
            f"{first.name} and {second.name} have no operation, size and communicator in common; "
            "name tables that do"
        )
    ratio = mean_gain([key.ratio for key in keys])
    return TableComparison(ratio, keys, tuple(_differences(first, second, keys)))


def mean_gain(ratios: Sequence[float]) -> float:
    """Return the geometric mean, 1 of nothing."""
    return geometric_mean(ratios) if ratios else 1.0


def _shapes(keys: Sequence[ReportedKey]) -> tuple[ShapeFigures, ...]:
    by_shape: dict[Shape, list[ReportedKey]] = {}
    for key in keys:
        by_shape.setdefault(key.shape, []).append(key)
    if len(by_shape) < 2:
        return ()
    return tuple(
        ShapeFigures(own[0].shape_name, shape, len(own), mean_gain([key.speedup for key in own]))
        for shape, own in by_shape.items()
    )


def _remarks(found: ReportedTable, keys: Sequence[ReportedKey]) -> Iterator[str]:
    if found.report is not None and found.gains is not None:
        yield from summary_lines(found.table, found.report, found.gains)
        return
    yield (
        f"A shipped directory holds {count_of(len(keys), 'key')} with an entry. Keys left to NCCL, "
        "the search and the machine are in the workspace that it was shipped from."
    )
    if found.evidence.caveat:
        yield found.evidence.caveat
    yield from placed_entries_lines(found.table)
    yield from dict.fromkeys(key.obstacle.sentence for key in keys if key.obstacle is not None)
    unknown = sum(key.runner is Runner.PROFILE for key in keys)
    if unknown:
        yield (
            f"{count_of(unknown, 'key')} without a setting of NCCL's count as no gain: the "
            "directory does not hold their time under the process profile."
        )


def _compared(first: ReportedKey, second: ReportedKey) -> ComparedKey:
    a, b = first.job, second.job
    return ComparedKey(
        first.operation,
        first.size_bytes,
        first.shape,
        first,
        second,
        a.time_us / b.time_us,
        None if a.low_us is None or b.high_us is None else a.low_us / b.high_us,
        None if a.high_us is None or b.low_us is None else a.high_us / b.low_us,
    )


def _differences(
    first: TableFigures, second: TableFigures, keys: Sequence[ComparedKey]
) -> Iterator[str]:
    if first.fingerprint != second.fingerprint:
        yield (
            f"the machines differ: {first.topology} ({first.fingerprint}) and {second.topology} "
            f"({second.fingerprint})"
        )
    if first.times is not second.times:
        yield f"times of the first are {first.times.value}, of the second {second.times.value}"
    elif first.times.caveat:
        yield first.times.caveat
    if first.nccl_version != second.nccl_version:
        named = [table.nccl_version or "not stated" for table in (first, second)]
        yield f"NCCL differs: {named[0]} and {named[1]}"
    stock = mean_gain([key.first.stock.time_us / key.second.stock.time_us for key in keys])
    if abs(stock - 1.0) > _SAME_STOCK:
        yield (
            f"stock NCCL's own times differ: those of the first are {stock:.3f} times those of "
            "the second on average, so not all of a ratio comes from the tables"
        )
    for table in (first, second):
        alone = len(table.all_keys) - len(keys)
        if alone:
            yield f"{count_of(alone, 'key')} of {table.name} not compared: the other has none such"
