"""`tuccl explain`: the entry that applies to an operation and size, and its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.lookup import TableIndex, lookup
from lookup_tables.table import Entry, Operation, SeenPlacement, Shape, Table
from tuccl.errors import UsageError
from tuccl.reports.choice_text import describe_builtin
from tuccl.reports.decision_sentence import decision_sentence
from tuccl.reports.evidence import Evidence
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import KeyGain, Runner
from tuccl.reports.report import KeyReport
from tuccl.search.trials.shapes import shape_text


@dataclass(frozen=True)
class Explanation:
    """The entry that applies to a call, and its evidence."""

    operation: Operation
    size_bytes: int
    shape: Shape
    entry: Entry | None
    evidence: KeyReport | None
    """Decision for the tuned size whose range holds the call's size; None outside every range."""
    tuned_from_bytes: int
    """Smallest size of the operation that the table can serve."""
    tuned_to_bytes: int
    """Largest size of the operation that the table can serve."""


def explain(
    result: FinishedRun, operation: Operation, size_bytes: int, shape: Shape, whole: Shape
) -> Explanation:
    """Find the entry for a call, and its evidence.

    Args:
        result: The run.
        operation: Operation of the call.
        size_bytes: Size of the call.
        shape: Shape of its communicator.
        whole: Shape of the communicator of all GPUs.

    Raises:
        UsageError: the operation was not tuned, or no communicators of this shape.
    """
    report = result.report
    of_operation = [key for key in report.keys if key.operation == operation.value]
    tuned = [key for key in of_operation if (key.shape or whole) == shape]
    if of_operation and not tuned:
        shapes = dict.fromkeys(key.shape or whole for key in of_operation)
        raise UsageError(
            f"communicators of {shape_text(shape)} were not tuned in this workspace, so NCCL "
            f"chooses there; only {', '.join(map(shape_text, shapes))}: "
            "`tuccl init --shapes` tunes others"
        )
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
        entry=lookup(result.table, operation, size_bytes, shape),
        evidence=holding[0] if holding else None,
        tuned_from_bytes=min(key.min_bytes for key in tuned),
        tuned_to_bytes=max(key.max_bytes for key in tuned),
    )


def placed_entries(found: Explanation, table: Table) -> list[tuple[SeenPlacement, Entry]]:
    """Return the communicators that have an entry of their own for a call, with the entry."""
    call = (found.operation, found.size_bytes, found.shape)
    entries = [(own, TableIndex(own.entries).lookup(*call)) for own in table.placements]
    return [(own, entry) for own, entry in entries if entry is not None]


def placed_lines(found: Explanation, table: Table) -> list[str]:
    """Return a line on each kind of communicators that the plugin tells apart, and its entry."""
    return [
        f"where NCCL's estimate is that of {own.example}: {describe_builtin(entry)}, "
        f"{entry.time_us:.2f} us ({entry.default_time_us / entry.time_us:.3f}x)"
        for own, entry in placed_entries(found, table)
    ]


def reason(gain: KeyGain, evidence: Evidence) -> str:
    """Explain in a sentence why a job runs its choice for a key; schedules appear as hashes."""
    key = gain.key
    winners = {Runner.EXECUTOR: key.schedule, Runner.PLUGIN: key.builtin}
    return decision_sentence(winners.get(gain.runner), key.rejected, evidence, key.left_out)
