"""A finished run on standard output: a table for people, JSON for machines."""

from __future__ import annotations

from tuccl.console.json_output import print_document
from tuccl.console.table_display import print_table
from tuccl.reports.choice_text import describe_runner, describe_schedule
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import JobGains, KeyGain, gains_of
from tuccl.reports.json_documents import (
    Apart,
    JobMeans,
    KeyApart,
    KeyInJob,
    ReasonApart,
    TableDocument,
    TunedKey,
    WithoutExecutor,
)


def print_result(result: FinishedRun, as_json: bool) -> None:
    """What `init`, `tune` and `table` end with."""
    gains = gains_of(result)
    if as_json:
        print_document(table_document(result, gains))
    else:
        print_table(result.table, result.report, gains)


def table_document(result: FinishedRun, gains: JobGains) -> TableDocument:
    """The table for machines."""
    table = result.table
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
        entries=list(table.entries),
        keys=[
            TunedKey(**gain.key.model_dump(), job=key_in_job(gain, result)) for gain in gains.keys
        ],
        table=str(result.run.table),
        bundle=str(result.run.bundle),
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
    """The outcome for a key in a job, and the schedule that stands apart."""
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
