"""A finished run, and the answer to one call, as JSON documents.

This module is imported for JSON alone: building its models takes longer than printing a table.
"""

from __future__ import annotations

from lookup_tables.table import Entry, SeenPlacement
from tuccl.reports.choice_text import describe_builtin, describe_runner, describe_schedule
from tuccl.reports.documents.step import step_document
from tuccl.reports.documents.table import (
    Apart,
    ExplainDocument,
    JobMeans,
    KeyApart,
    KeyInJob,
    PlacedEntry,
    ReasonApart,
    TableDocument,
    TunedKey,
    WithoutExecutor,
)
from tuccl.reports.explanation import Explanation, placed_entries
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import JobGains, KeyGain
from tuccl.reports.step_gain import step_of


def table_document(result: FinishedRun, gains: JobGains) -> TableDocument:
    """Return the document of a table."""
    table, step = result.table, step_of(result.report, gains)
    return TableDocument(
        topology=table.topology_name,
        fingerprint=table.fingerprint,
        times=gains.evidence,
        caveats=list(gains.caveats),
        job=JobMeans(
            speedup=gains.speedup,
            speedup_without_executor=gains.speedup_without_executor,
            keys_by_runner=dict(gains.runners),
        ),
        apart=_apart(gains),
        profile=dict(table.profile),
        weights=result.report.weights,
        shapes=result.report.shapes,
        step=None if step is None else step_document(step),
        entries=list(table.entries),
        placed=[_placed(own, entry) for own in table.placements for entry in own.entries],
        keys=[
            TunedKey(**gain.key.model_dump(), job=key_in_job(gain, result)) for gain in gains.keys
        ],
        table=str(result.run.table),
        bundle=str(result.run.bundle),
    )


def _placed(own: SeenPlacement, entry: Entry) -> PlacedEntry:
    shown = entry.confirmation
    return PlacedEntry(
        operation=entry.key.operation,
        shape=own.shape,
        placement=own.example,
        min_bytes=entry.key.min_bytes,
        max_bytes=entry.key.max_bytes,
        tuned_bytes=entry.tuned_bytes,
        runs=describe_builtin(entry),
        stock_us=entry.default_time_us,
        time_us=entry.time_us,
        speedup=entry.default_time_us / entry.time_us,
        low=None if shown is None else shown.low,
        high=None if shown is None else shown.high,
    )


def _apart(gains: JobGains) -> Apart | None:
    if not gains.obstacles:
        return None
    reasons = [
        ReasonApart(reason=obstacle, text=obstacle.sentence, keys=count)
        for obstacle, count in gains.obstacles.items()
    ]
    return Apart(speedup=gains.speedup_with_all_schedules, reasons=reasons)


def key_in_job(gain: KeyGain, result: FinishedRun) -> KeyInJob:
    """Return a key's outcome in a job, with a schedule that no job here runs."""
    apart = None
    if gain.obstacle is not None and gain.entry is not None:
        apart = KeyApart(
            schedule=describe_schedule(gain.entry, result.table),
            time_us=gain.apart_us,
            speedup=gain.apart_speedup,
            reason=gain.obstacle,
        )
    return KeyInJob(
        runner=gain.runner,
        runs=describe_runner(gain, result.table),
        time_us=gain.time_us,
        speedup=gain.speedup,
        without_executor=WithoutExecutor(
            runner=gain.without_executor, time_us=gain.without_executor_us
        ),
        apart=apart,
    )


def explain_document(
    found: Explanation, gain: KeyGain | None, current: FinishedRun, gains: JobGains
) -> ExplainDocument:
    """Return the document on what a call runs, and why."""
    return ExplainDocument(
        operation=found.operation,
        size_bytes=found.size_bytes,
        shape=found.shape,
        times=gains.evidence,
        caveats=list(gains.caveats),
        job=None if gain is None else key_in_job(gain, current),
        entry=found.entry,
        placed=[_placed(own, entry) for own, entry in placed_entries(found, current.table)],
        evidence=found.evidence,
        tuned_from_bytes=found.tuned_from_bytes,
        tuned_to_bytes=found.tuned_to_bytes,
        profile=dict(current.table.profile),
    )
