"""`tuccl explain`: which entry applies to an operation and size, and why."""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.lookup import lookup
from lookup_tables.table import Entry, Operation, Shape, Table
from tuccl.errors import UsageError
from tuccl.reports.decision_sentence import decision_sentence
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import KeyGain, Runner
from tuccl.reports.report import KeyReport, Report


@dataclass(frozen=True)
class Explanation:
    """What a call would get, and the evidence."""

    operation: Operation
    size_bytes: int
    shape: Shape
    entry: Entry | None
    evidence: KeyReport | None
    """Of the tuned size whose range holds the call's; None outside everything tuned."""
    tuned_from_bytes: int
    """Smallest and largest size of the operation that the table can serve."""
    tuned_to_bytes: int


def explain(
    table: Table, report: Report, operation: Operation, size_bytes: int, shape: Shape
) -> Explanation:
    """The entry for a call, with the evidence.

    Raises:
        UsageError: when the operation was not tuned.
    """
    tuned = [key for key in report.keys if key.operation == operation.value]
    if not tuned:
        known = ", ".join(sorted({key.operation for key in report.keys}))
        raise UsageError(
            f"{operation.value} was not tuned in this workspace, only {known}; "
            "run `tuccl init --operations` with it"
        )
    holding = [key for key in tuned if key.min_bytes <= size_bytes <= key.max_bytes]
    return Explanation(
        operation=operation,
        size_bytes=size_bytes,
        shape=shape,
        entry=lookup(table, operation, size_bytes, shape),
        evidence=holding[0] if holding else None,
        tuned_from_bytes=min(key.min_bytes for key in tuned),
        tuned_to_bytes=max(key.max_bytes for key in tuned),
    )


def reason(gain: KeyGain, evidence: Evidence) -> str:
    """One sentence on why a job runs what it runs for a key; schedules stand by their hashes."""
    key = gain.key
    winners = {Runner.EXECUTOR: key.schedule, Runner.PLUGIN: key.builtin}
    return decision_sentence(winners.get(gain.runner), key.rejected, evidence)
