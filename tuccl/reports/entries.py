"""`EntryFigures`: an entry of a table or bundle as one key's figures, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lookup_tables.bundles.bundle import Bundle, BundleEntry
from lookup_tables.confirmation import Confirmation
from lookup_tables.table import Entry, Table
from tuccl.reports.choice_text import describe_builtin, runs_text
from tuccl.reports.evidence import Evidence, evidence_of_backend
from tuccl.reports.keys import Gain, KeyFigures, Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFigures(KeyFigures):
    """An entry of a table: its winner, whether or not a job here runs it.

    `size_bytes` is the size that was tuned, or the smallest one if only a bundle is known. The
    bounds of the gain are of that over the reference of its comparison.
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


def entries_of(table: Table | Bundle) -> Iterator[EntryFigures]:
    """Yield the entries of shapes, then those by where ranks sit."""
    for entry in table.entries:
        yield entry_figures(entry, table)
    yield from placed_entries_of(table)


def placed_entries_of(table: Table | Bundle) -> Iterator[EntryFigures]:
    """Yield the entries for some communicators of a shape."""
    if isinstance(table, Bundle):
        for alike in table.placements:
            line = alike.line
            told = f"an estimate of {line.latency_us:.4g} us and {line.us_per_byte:.4g} us per byte"
            for known in alike.entries:
                yield entry_figures(known, table, told)
        return
    for own in table.placements:
        for entry in own.entries:
            yield entry_figures(entry, table, own.example)


def entry_figures(
    entry: Entry | BundleEntry, table: Table | Bundle, placement: str | None = None
) -> EntryFigures:
    """Return the figures of an entry.

    Args:
        entry: The entry.
        table: Its table or bundle; a bundle keeps no times of schedules and no evidence.
        placement: GPUs of a communicator, if the entry is for those like it alone.
    """
    size_bytes = entry.key.min_bytes
    confirmation = provenance = None
    if isinstance(entry, Entry):
        size_bytes, time_us = entry.tuned_bytes, float(entry.time_us)
        confirmation, provenance = entry.confirmation, entry.provenance
    else:
        time_us = 0.0 if entry.schedule else entry.builtin_time_us or 0.0
    gain = None
    if time_us:
        bounds = (confirmation.low, confirmation.high) if confirmation else (None, None)
        gain = Gain(entry.default_time_us / time_us, *bounds)
    runner = Runner.EXECUTOR if entry.schedule else Runner.PLUGIN
    return EntryFigures(
        operation=entry.key.operation,
        size_bytes=size_bytes,
        shape=entry.key.shape,
        placement=placement,
        stock_us=entry.default_time_us,
        table_us=time_us or None,
        gain=gain,
        runner=runner,
        runs=runs_text(runner, entry, table),
        starts=None if confirmation is None else confirmation.starts,
        provenance=provenance,
        min_bytes=entry.key.min_bytes,
        max_bytes=entry.key.max_bytes,
        builtin=describe_builtin(entry),
        builtin_us=(entry.builtin_time_us or None) if entry.builtin else None,
        times=None if provenance is None else evidence_of_backend(provenance.backend),
        confirmation=confirmation,
    )
