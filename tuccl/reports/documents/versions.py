"""The JSON documents of `history`, `rollback` and `diff`."""

from __future__ import annotations

from typing import Literal

from lookup_tables.table import Operation, Shape
from tuccl.reports.documents.document import SCHEMA_VERSION, Document
from tuccl.reports.documents.shipped import ShownMachine
from tuccl.reports.evidence import Evidence
from tuccl.reports.table_difference import Change
from tuccl.reports.table_parts import TablePart


class KeptVersion(Document):
    """A table that a shipped directory keeps."""

    version: int
    """Number, counted from 1 in the order of the ships."""
    bundle_crc: str
    current: bool
    """Whether jobs load it."""
    shipped_at: str
    """ISO 8601, UTC."""
    run: str | None
    """Directory of the run that was shipped; None: an earlier release shipped the table."""
    tuccl: str
    """Release that shipped the table."""
    topology: str
    fingerprint: str
    machine: ShownMachine | None
    nccl: str | None
    """Version of NCCL that was measured; None: none was."""
    times: Evidence
    """The weakest evidence behind any of the times."""
    tuned_from: str | None
    tuned_to: str | None
    gain: float | None
    """Speedup of a job over stock NCCL when it was shipped: geometric mean over the keys of its
    run; None: unknown."""
    profile: dict[str, str]
    shapes: list[Shape]
    parts: list[TablePart]
    """Measured and modelled parts."""
    executor: bool
    """Whether the executor is loaded by default."""
    folder: str
    problems: list[str]
    """How its files differ from its manifest, one sentence each."""


class HistoryDocument(Document):
    """`history`: the tables that a shipped directory keeps."""

    schema_version: Literal[8] = SCHEMA_VERSION
    directory: str
    bundle_crc: str
    """Sum of the table that jobs load."""
    versions: list[KeptVersion]
    """The oldest first; without the current table where an earlier release shipped it."""


class RollbackDocument(Document):
    """`rollback`: the version that is current now."""

    schema_version: Literal[8] = SCHEMA_VERSION
    directory: str
    version: int
    bundle_crc: str
    before: int | None
    """Version that was current before; None: its files were not whole."""
    caveats: list[str]


class ComparedSide(Document):
    """A table of `diff`."""

    place: str
    """The place that was given."""
    topology: str
    fingerprint: str
    nccl: str | None
    """Version of NCCL that was measured; None: none was, or it is unknown."""
    profile: dict[str, str]
    keys: int


class KeyPromise(Document):
    """A key under one table."""

    runs: str
    """The setting or schedule that a job runs, in words."""
    time_us: float | None
    """None: unknown, as NCCL's own choice under a profile is to a shipped directory."""
    stock_us: float
    speedup: float | None
    provenance: str | None
    """Origin of the times, in words; None: there is no entry, or it does not say."""


class DiffKey(Document):
    """A key of two tables."""

    operation: Operation
    shape: Shape
    size_bytes: int
    placement: str | None
    """GPUs of a communicator, where the entry is for those like it alone; None: wherever ranks
    sit."""
    first: KeyPromise | None
    """None: the table does not have the key."""
    second: KeyPromise | None
    ratio: float | None
    """Time under the first table over that under the second; None: one is not known."""
    changes: list[Change]
    """Aspects that differ; empty where one table lacks the key."""


class DiffDocument(Document):
    """`diff`: a second table against a first one."""

    schema_version: Literal[8] = SCHEMA_VERSION
    first: ComparedSide
    second: ComparedSide
    common: int
    """Number of keys that both tables have."""
    speedup: float | None
    """Speedup of the second table over the first, geometric mean over the common keys with known
    times; None: there are none."""
    same: bool
    """Whether machine, NCCL, profile and all keys are the same."""
    keys: list[DiffKey]
