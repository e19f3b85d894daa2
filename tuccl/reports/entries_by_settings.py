"""A shape's entries as jobs without the executor have them: by built-in settings alone."""

from __future__ import annotations

from dataclasses import replace

from lookup_tables.confirmation import Confirmation
from lookup_tables.table import Entry, Shape, Table
from tuccl.reports.report import ComparisonReport, KeyReport, Report


def entries_by_settings(table: Table, report: Report, shape: Shape) -> tuple[Entry, ...] | None:
    """Return the entries of a shape with a built-in setting, each won by it.

    None where the report of an earlier release lacks the evidence for one.
    """
    own_keys = (key for key in report.keys if key.shape in {shape, None})
    keys = {(key.operation, key.size_bytes): key for key in own_keys}
    found = []
    for entry in table.entries:
        if entry.key.shape != shape or entry.builtin is None:
            continue
        own = entry
        if entry.schedule is not None:
            key = keys.get((entry.key.operation.value, entry.tuned_bytes))
            by_setting = _by_setting(entry, key)
            if by_setting is None:
                return None
            own = by_setting
        found.append(own)
    return tuple(found)


def _by_setting(entry: Entry, key: KeyReport | None) -> Entry | None:
    """Return a schedule's entry as that of the setting beside it; None: its evidence is unknown."""
    shown = None if key is None else key.builtin
    confirmation = None if shown is None else _confirmation(shown)
    if shown is None or confirmation is None:
        return None
    return replace(
        entry,
        schedule=None,
        time_us=shown.time_us,
        builtin_time_us=shown.time_us,
        samples=shown.samples,
        spread=shown.spread,
        confirmation=confirmation,
    )


def _confirmation(shown: ComparisonReport) -> Confirmation | None:
    reference, estimator, starts = shown.reference, shown.estimator, shown.starts
    high, confidence = shown.upper_bound, shown.confidence
    if reference is None or estimator is None or starts is None:
        return None
    if high is None or confidence is None:
        return None
    return Confirmation(
        reference, estimator, shown.ratio, shown.lower_bound, high, confidence, starts
    )
