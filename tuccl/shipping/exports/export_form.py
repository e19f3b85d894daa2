"""`ExportForm`: a form of a table for readers that cannot load the plugin.

A module of this package has one form as `FORM`; `tuccl/cli/export.py` lists their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.table import Table
from tuccl.reports.report import Report


@dataclass(frozen=True, slots=True)
class ExportSource:
    """A table, and what it is exported with."""

    name: str
    """Its directory, as the user named it."""
    table: Table
    report: Report | None
    """Report of the table's run; None for a shipped directory, which has none."""
    own_times: Path | None
    """File with the times of the reader's own implementation."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The content of an export."""

    text: str
    rows: int
    """Rows of a CSV, or communicators with a threshold."""
    said: tuple[str, ...]
    """Sentences on the file for people."""
    notes: tuple[str, ...]
    """Contents of the table that the form cannot hold, and what readers do with the rest."""


@dataclass(frozen=True, slots=True)
class ExportForm:
    """A form."""

    file_name: str
    """Name of the file if the user gives none."""
    mark: str
    """Beginning of each file, by which an earlier export is recognized."""
    export: Callable[[ExportSource, Path], Exported]
    """Makes the content for a file; raises UsageError if the table has nothing for the form."""
    needs_own_times: bool = False
