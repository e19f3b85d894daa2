"""`EntryFigures`: an entry of a table or bundle as one key's figures, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lookup_tables.bundles.bundle import Bundle, BundleEntry
from lookup_tables.confirmation import Confirmation
from lookup_tables.table import Entry, Table
from tuccl.reports.choice_text import describe_builtin, describe_schedule
from tuccl.reports.evidence import Evidence, evidence_of_backend
from tuccl.reports.job_gains import KeyApart, entry_in_job, obstacle_to
from tuccl.reports.json_form import fields_of
from tuccl.reports.keys import KeyFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFigures(KeyFigures):
    """An entry of a table, as a job runs it.

    `size_bytes` is the size that was tuned, or the smallest one if only a bundle is known.
    """

    min_bytes: int
    max_bytes: int
    """Largest size, inclusive."""
    builtin: str
    """NCCL's setting for jobs without the executor, in words; `-`: NCCL's own choice."""
    builtin_us: float | None
    """Time of that setting."""
    times: Evidence | None
    """Evidence behind the times; None: unknown."""
    confirmation: Confirmation | None
    """Evidence that the winner is faster; None: a bundle has none."""
    apart: KeyApart | None
    """The winning schedule, if jobs do not run it; None: they run it, or no schedule won."""


def entries_of(
    table: Table | Bundle, evidence: Evidence, *, has_executor: bool
) -> Iterator[EntryFigures]:
    """Yield the entries of shapes, then those by where ranks sit.

    Args:
        table: A table, or a bundle, which keeps no times of schedules and no evidence.
        evidence: Evidence behind its times.
        has_executor: Whether a job that uses it has the executor.
    """
    for entry in table.entries:
        yield entry_figures(entry, table, evidence, has_executor=has_executor)
    yield from placed_entries_of(table)


def placed_entries_of(table: Table | Bundle) -> Iterator[EntryFigures]:
    """Yield the entries for some communicators of a shape: settings of NCCL."""
    alike: list[tuple[str, Sequence[Entry] | Sequence[BundleEntry]]] = []
    if isinstance(table, Bundle):
        for own in table.placements:
            line = own.line
            told = f"an estimate of {line.latency_us:.4g} us and {line.us_per_byte:.4g} us per byte"
            alike.append((told, own.entries))
    else:
        alike = [(own.example, own.entries) for own in table.placements]
    for placement, entries in alike:
        for entry in entries:
            yield entry_figures(
                entry, table, Evidence.MEASURED, has_executor=False, placement=placement
            )


def entry_figures(
    entry: Entry | BundleEntry,
    table: Table | Bundle,
    evidence: Evidence,
    *,
    has_executor: bool,
    placement: str | None = None,
) -> EntryFigures:
    """Return the figures of an entry.

    Args:
        entry: The entry.
        table: Its table or bundle.
        evidence: Evidence behind its times.
        has_executor: Whether a job that uses it has the executor.
        placement: GPUs of a communicator, if the entry is for those like it alone.
    """
    job = entry_in_job(entry, table, evidence, has_executor=has_executor, placement=placement)
    obstacle = obstacle_to(entry, table, evidence, has_executor=has_executor)
    apart = None
    if obstacle is not None:
        time_us = entry.time_us if isinstance(entry, Entry) else None
        speedup = None if time_us is None else entry.default_time_us / time_us
        apart = KeyApart(describe_schedule(entry, table), time_us, speedup, obstacle)
    origin = job.provenance
    return EntryFigures(
        **fields_of(job),
        min_bytes=entry.key.min_bytes,
        max_bytes=entry.key.max_bytes,
        builtin=describe_builtin(entry),
        builtin_us=(entry.builtin_time_us or None) if entry.builtin else None,
        times=None if origin is None else evidence_of_backend(origin.backend),
        confirmation=entry.confirmation if isinstance(entry, Entry) else None,
        apart=apart,
    )
