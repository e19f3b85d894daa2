"""`tuccl explain`: the entry that applies to an operation and size, and its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.lookup import lookup
from lookup_tables.table import Entry, Operation, Shape
from tuccl.errors import UsageError
from tuccl.reports.decision_sentence import decision_sentence
from tuccl.reports.entries import EntryFigures, placed_entries_of
from tuccl.reports.evidence import Evidence
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import KeyGain
from tuccl.reports.keys import Runner
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
    placed: tuple[EntryFigures, ...]
    """Entries for communicators that the plugin tells apart, for this call."""


def explain(
    result: FinishedRun, operation: Operation, size_bytes: int, shape: Shape
) -> Explanation:
    """Find the entry for a call, and its evidence.

    Args:
        result: The run.
        operation: Operation of the call.
        size_bytes: Size of the call.
        shape: Shape of its communicator.

    Raises:
        UsageError: the operation was not tuned, or no communicators of this shape.
    """
    report = result.report
    of_operation = [key for key in report.keys if key.operation is operation]
    tuned = [key for key in of_operation if key.shape == shape]
    if of_operation and not tuned:
        shapes = dict.fromkeys(key.shape for key in of_operation)
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
        placed=tuple(
            each
            for each in placed_entries_of(result.table)
            if (each.operation, each.shape) == (operation, shape)
            and each.min_bytes <= size_bytes <= each.max_bytes
        ),
    )


def placed_lines(found: Explanation) -> list[str]:
    """Return a line on each kind of communicators that the plugin tells apart, and its entry."""
    return [
        f"where NCCL's estimate is that of {own.placement}: {own.runs}, {own.table_us:.2f} us "
        f"({own.gain.ratio:.3f}x)"
        for own in found.placed
        if own.gain is not None
    ]


def reason(gain: KeyGain, evidence: Evidence) -> str:
    """Explain in a sentence why a job runs its choice for a key; schedules appear as hashes."""
    key = gain.key
    winners = {Runner.EXECUTOR: key.schedule, Runner.PLUGIN: key.builtin}
    return decision_sentence(winners.get(gain.runner), key.rejected, evidence, key.left_out)
