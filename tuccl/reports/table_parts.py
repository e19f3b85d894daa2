"""`TablePart`: entries of one operation and communicator with one origin, for summaries of a table.

A table may hold measured and modelled entries beside each other; a summary tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Entry, Shape, Table
from tuccl.reports.evidence import Evidence, evidence_of_backend


@dataclass(frozen=True, slots=True)
class TablePart:
    """Entries of a table that share operation, communicator shape and origin of their times."""

    operation: Collective
    shape: Shape
    times: Evidence | None
    """Evidence behind the times; None: the table does not record it."""
    backend: str | None
    """Backend that took or computed the times."""
    nccl: str | None
    """Version of NCCL that ran; None: none ran, or it is unknown."""
    tuccl: str | None
    """Release of TuCCL that took the times."""
    replayed: bool
    """Whether the times come from a record."""
    entries: int
    schedules: int
    """Number of these entries that a schedule won."""
    min_bytes: int
    """Smallest size that an entry holds."""
    max_bytes: int
    """Largest size that an entry holds, inclusive."""


def parts_of(table: Table) -> tuple[TablePart, ...]:
    """Return the parts of a table, in the order of its entries."""
    groups: dict[tuple[Shape, Collective, Provenance | None], list[Entry]] = {}
    for entry in table.all_entries:
        key = (entry.key.shape, entry.key.operation, _origin(entry.provenance))
        groups.setdefault(key, []).append(entry)
    return tuple(
        _part(shape, operation, origin, entries)
        for (shape, operation, origin), entries in groups.items()
    )


def _origin(provenance: Provenance | None) -> Provenance | None:
    """Return the provenance without what differs from entry to entry."""
    if provenance is None:
        return None
    return Provenance(
        provenance.backend,
        provenance.nccl_version,
        provenance.tuccl_version,
        replayed=provenance.replayed,
    )


def _part(
    shape: Shape, operation: Collective, origin: Provenance | None, entries: list[Entry]
) -> TablePart:
    version = None if origin is None else origin.nccl_version
    return TablePart(
        operation=operation,
        shape=shape,
        times=None if origin is None else evidence_of_backend(origin.backend),
        backend=None if origin is None else origin.backend,
        nccl=None if version is None else str(version),
        tuccl=None if origin is None else origin.tuccl_version,
        replayed=origin is not None and origin.replayed,
        entries=len(entries),
        schedules=sum(entry.schedule is not None for entry in entries),
        min_bytes=min(entry.key.min_bytes for entry in entries),
        max_bytes=max(entry.key.max_bytes for entry in entries),
    )


def measured_nccl(table: Table) -> str:
    """Return the version of NCCL that a table was measured with, as `2.28.9`; empty for none."""
    origins = (entry.provenance for entry in table.all_entries)
    return next((str(found.nccl_version) for found in origins if found and found.nccl_version), "")


def tuning_times(table: Table) -> tuple[str, str] | None:
    """Return when the first and the last entry were tuned, ISO 8601; None where nothing says so."""
    times = sorted(filter(None, (entry.tuned_at for entry in table.all_entries)))
    return (times[0], times[-1]) if times else None
