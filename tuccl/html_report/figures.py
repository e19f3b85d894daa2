"""`ReportFigures`: all figures of a report, and the JSON document that has them."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from tuccl.html_report.places import ReportedTable
from tuccl.html_report.table_figures import TableFigures, table_figures
from tuccl.reports.json_documents import SCHEMA_VERSION
from tuccl.workspace.measurement_lines import Contents
from tuccl.workspace.measurement_log import read_log


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """The figures of a report."""

    made_at: str
    """When the report was made: ISO 8601, UTC."""
    tables: tuple[TableFigures, ...]
    """One, or two that are compared."""


class ReportDocument(BaseModel):
    """`tuccl report --json`."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,
        defer_build=True,
    )

    schema_version: int = SCHEMA_VERSION
    file: str
    """Path of the page."""
    figures: ReportFigures


def report_figures(found: ReportedTable, made_at: str) -> ReportFigures:
    """Return the figures of a report on one table.

    Raises:
        WorkspaceError: The measurements of its run cannot be read.
    """
    return ReportFigures(made_at, (table_figures(found, measurements_of(found)),))


def measurements_of(found: ReportedTable) -> Contents | None:
    """Return the measurements of a table's run; None where the place has none.

    Raises:
        WorkspaceError: They cannot be read.
    """
    if found.run is None:
        return None
    return read_log(found.run.measurements, found.identity)
