"""`import_learned`: what a job learned becomes the next table of a workspace.

The new run has the machine, the options and the measurements of the one before, so that `retune`
goes on from it, and its own table, report and bundle.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.confirmation import Estimator, Reference
from lookup_tables.provenance import Provenance
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Shape, Table
from tuccl import __version__
from tuccl.errors import InputFileError, UsageError, WorkspaceError
from tuccl.quantities import format_size
from tuccl.reports.learned import Learned, read_learned
from tuccl.reports.report import ComparisonReport, KeyReport, Report
from tuccl.reports.tuning_result import current_run, read_machine
from tuccl.tuning.learned_table import LearnedChange, with_learned
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.runs import Run, Workspace

LEARNED = "learned"
"""Backend of times that jobs took, in their provenance."""
_SAMPLES, _CONFIDENCE = 15, 0.98
"""Of the rule of the trial that decides: slower in 12 pairs of 15."""


@dataclass(frozen=True, slots=True)
class LearnedEntry:
    """A size whose choice is another one now."""

    operation: Collective
    size_bytes: int
    shape: Shape
    runs: str
    """The choice in a few words."""
    time_us: float | None
    """Median in the job."""
    nccl_us: float | None
    """That of NCCL's own choice."""


@dataclass(frozen=True, slots=True)
class LearnedImport:
    """`learned import`: the table that what a job learned has made."""

    run: str
    """Name of the new run; that of the current one if nothing has changed."""
    before: str
    """The run whose table it continues."""
    job: str
    entries: tuple[LearnedEntry, ...]


def import_learned(workspace: Workspace, paths: Sequence[Path], job: str) -> LearnedImport:
    """Make what a job learned the next table of a workspace, and its current one.

    Args:
        workspace: The workspace that the job's table is from.
        paths: The files that the job wrote.
        job: Name of the job; empty: its hosts and when it ended.

    Raises:
        InputFileError: A file cannot be read, is no such file, or of a job on another machine.
        WorkspaceError: The workspace has no finished run, or is in use.
        UsageError: The name has other than printable ASCII letters.
        TableError: The table would break a rule.
    """
    if not job.isascii() or not job.isprintable() or len(job) > 100:
        raise UsageError("--job takes at most 100 printable ASCII letters")
    learned = read_learned(paths)
    old = current_run(workspace.root)
    _require_machine(learned, len(read_machine(old.run).gpus))
    _require_schedules(learned, old.table)
    job = job or f"on {', '.join(learned.hosts[:3])}, ended {learned.written_at}"
    provenance = Provenance(
        LEARNED,
        tuccl_version=__version__,
        machine=old.table.topology_name,
        details=f"learned in the job {job}",
    )
    table, changes = with_learned(old.table, learned.keys, provenance, learned.written_at)
    before = old.run.root.name
    bundle = bundle_bytes(table)
    name = f"{before.partition('-learned-')[0]}-learned-{bundle_crc(bundle):08x}"
    if not changes or name == before:
        return LearnedImport(before, before, job, ())
    entries = tuple(_entry(change) for change in changes)
    record = old.run.record()
    if record is None:
        raise WorkspaceError(f"{old.run.root}/run.json is missing; run `tuccl init` again")
    with workspace.lock(name) as run:
        _copy(old.run, run)
        run.write_record(replace(record, complete=False))
        report = _report(old.report, table, changes, job)
        write_atomically(run.report, report.model_dump_json(indent=1) + "\n")
        write_atomically(run.bundle, bundle)
        write_atomically(run.table, table_to_parquet_bytes(table))
        run.write_record(replace(record, complete=True))
        workspace.set_current(name)
    return LearnedImport(name, before, job, entries)


def _require_machine(learned: Learned, gpus: int) -> None:
    most = max((key.shape.ranks for key in learned.keys), default=0)
    if most > gpus:
        raise InputFileError(
            f"the job had communicators of {most} ranks, the workspace's machine has {gpus} GPUs; "
            "name the workspace that the job's table is from (--workspace)"
        )


def _require_schedules(learned: Learned, table: Table) -> None:
    known = {schedule.content_hash for schedule in table.schedules}
    for key in learned.keys:
        arm = key.chosen
        is_new = key.races > 0 and key.choice > 0
        if is_new and arm.schedule is not None and arm.schedule.schedule not in known:
            raise InputFileError(
                f"the job learned schedule {arm.name} for {key.operation.value} of "
                f"{format_size(key.size_bytes)}, which the workspace's table lacks; name the "
                "workspace that the job's table is from (--workspace)"
            )


def _entry(change: LearnedChange) -> LearnedEntry:
    key = change.key
    return LearnedEntry(
        key.operation, key.size_bytes, key.shape, key.chosen.text, key.chosen.time_us, key.nccl_us
    )


def _copy(old: Run, new: Run) -> None:
    """Copy what the new run has in common with the old one."""
    for folder in (old.sketches, old.schedules):
        if folder.is_dir():
            shutil.copytree(folder, new.root / folder.name, dirs_exist_ok=True)
    for path in (old.topology, old.host, old.workload, old.measurements):
        if path.is_file():
            shutil.copyfile(path, new.root / path.name)


def _report(report: Report, table: Table, changes: Sequence[LearnedChange], job: str) -> Report:
    """Return the report with the keys that the job decided, and the ranges of the new table.

    Jobs with the whole table were of the table before.
    """
    of_change = {(own.key.operation, own.key.size_bytes, own.key.shape): own for own in changes}
    ranges = {(own.key.operation, own.tuned_bytes, own.key.shape): own.key for own in table.entries}
    keys = []
    for key in report.keys:
        name = (key.operation, key.size_bytes, key.shape)
        made = _key(key, of_change[name], job) if name in of_change else key
        if (own := ranges.get(name)) is not None:
            made = made.model_copy(update={"min_bytes": own.min_bytes, "max_bytes": own.max_bytes})
        keys.append(made)
    return report.model_copy(update={"keys": keys, "whole": None})


def _key(key: KeyReport, change: LearnedChange, job: str) -> KeyReport:
    learned = change.key
    chosen, nccl_us = learned.chosen, learned.nccl_us or key.stock_us
    time_us = chosen.time_us or nccl_us
    comparison = None
    if change.entry is not None:
        comparison = ComparisonReport(
            config=chosen.text,
            time_us=time_us,
            reference_us=nccl_us,
            ratio=nccl_us / time_us,
            lower_bound=min(1.0, nccl_us / time_us),
            samples=_SAMPLES,
            spread=0.0,
            upper_bound=None,
            confidence=_CONFIDENCE,
            reference=Reference.PROFILE,
            estimator=Estimator.MEDIAN_OF_PAIRS,
            starts=1,
        )
    return key.model_copy(
        update={
            "stock_us": nccl_us,
            "profile_default_us": nccl_us,
            "builtin": key.builtin if chosen.schedule else comparison,
            "schedule": comparison if chosen.schedule else None,
            "rejected": [],
            "why": f"{chosen.text} was fastest in the job {job}: {time_us:.4g} us, NCCL's own "
            f"choice {nccl_us:.4g} us",
            "unproved": None,
            "profile_ratio": None,
            "whole": None,
        }
    )
