"""A shape's entries as jobs without the executor have them: by built-in settings alone."""

from __future__ import annotations

import math
from dataclasses import replace

from lookup_tables.confirmation import Confirmation
from lookup_tables.table import Entry, Shape, Table
from tuccl.reports.report import KeyReport, Report


def entries_by_settings(table: Table, report: Report, shape: Shape) -> tuple[Entry, ...]:
    """Return the entries of a shape with a built-in setting, each won by it."""
    keys = {(key.operation, key.size_bytes): key for key in report.keys if key.shape == shape}
    return tuple(
        _by_setting(entry, keys.get((entry.key.operation, entry.tuned_bytes)))
        for entry in table.entries
        if entry.key.shape == shape and entry.builtin is not None
    )


def _by_setting(entry: Entry, key: KeyReport | None) -> Entry:
    """Return a schedule's entry as that of the setting beside it, any other as it is."""
    shown = None if key is None else key.builtin
    if entry.schedule is None or entry.builtin_time_us is None:
        return entry
    # The report has no key for a size that a job learned, or has not compared settings there.
    if shown is None:
        time_us = entry.builtin_time_us
        return replace(entry, schedule=None, time_us=time_us, confirmation=None)
    return replace(
        entry,
        schedule=None,
        time_us=shown.time_us,
        builtin_time_us=shown.time_us,
        samples=shown.samples,
        spread=shown.spread,
        confirmation=Confirmation(
            shown.reference,
            shown.estimator,
            shown.ratio,
            shown.lower_bound,
            math.inf if shown.upper_bound is None else shown.upper_bound,
            shown.confidence,
            shown.starts,
        ),
    )
