"""`ReportFigures`: all figures of a report, and the JSON document that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sketches.sketch import Sketch
from tuccl.reports.documents.document import SCHEMA_VERSION, Document
from tuccl.views.page.figures.comparison import Comparison, compare
from tuccl.views.page.figures.places import ReportedTable
from tuccl.views.page.figures.search_progress import SearchProgress, search_progress
from tuccl.views.page.figures.sketch_figures import SketchFigures, sketch_figures
from tuccl.views.page.figures.table_figures import TableFigures, table_figures
from tuccl.views.page.figures.timelines import Timeline, timelines_of
from tuccl.workspace.measurement_history import read_history
from tuccl.workspace.measurement_lines import Contents
from tuccl.workspace.measurement_log import read_log


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """The figures of a report."""

    made_at: str
    """When the report was made: ISO 8601, UTC."""
    tables: tuple[TableFigures, ...]
    """One, or two that are compared."""
    search: SearchProgress | None = None
    """How the search went; None where the place has no measurements, or two are compared."""
    sketches: tuple[SketchFigures, ...] = ()
    """Connections that the sketches of the run keep and drop."""
    timelines: tuple[Timeline, ...] = ()
    """Simulated calls of schedules that won."""
    comparison: Comparison | None = None
    """The two tables key by key."""


class ReportDocument(Document):
    """`tuccl report --json`."""

    schema_version: int = SCHEMA_VERSION
    file: str
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
    table = table_figures(found, measurements_of(found))
    return ReportFigures(
        made_at,
        (table,),
        _search(found, table),
        tuple(map(sketch_figures, sketches)),
        timelines_of(found, table.keys, sketches),
    )


def _search(found: ReportedTable, table: TableFigures) -> SearchProgress | None:
    if found.run is None or found.report is None:
        return None
    history = read_history(found.run.measurements, found.identity)
    names = {content: schedule.name for content, schedule in found.report.schedules.items()}
    named = bool(found.report.shapes)
    progress = search_progress(table.keys, history, names, full_names=named)
    return progress if progress.measurements else None


def compared_figures(
    first: ReportedTable, second: ReportedTable, made_at: str
) -> tuple[ReportFigures, Comparison]:
    """Return the figures of a report on two tables, and their comparison.

    Raises:
        UsageError: The tables have no key in common.
        WorkspaceError: The measurements of a run cannot be read.
    """
    tables = tuple(table_figures(found, measurements_of(found)) for found in (first, second))
    comparison = compare(*tables)
    return ReportFigures(made_at, tables, comparison=comparison), comparison


def measurements_of(found: ReportedTable) -> Contents | None:
    """Return the measurements of a table's run; None where the place has none.

    Raises:
        WorkspaceError: They cannot be read.
    """
    if found.run is None:
        return None
    return read_log(found.run.measurements, found.identity)
