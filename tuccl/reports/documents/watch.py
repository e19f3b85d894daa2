"""The JSON document of `tuccl watch --json`."""

from __future__ import annotations

from typing import Literal

from lookup_tables.table import Operation, Shape
from tuccl.reports.documents.document import SCHEMA_VERSION, Document


class WatchFinding(Document):
    """A finding of one check."""

    check: str
    """Short name of the check: `machine`, `GPUs`, `driver`, `measured`."""
    severity: Literal["ok", "note", "warning", "error"]
    """`warning` and `error` are changes; `note` tells what is not known, or not compared."""
    text: str
    mend: str
    """The remedy; empty where nothing is to be done."""


class WatchedKey(Document):
    """A key that was measured."""

    operation: Operation
    size_bytes: int
    shape: Shape
    placement: str | None
    """GPUs of a communicator, where the entry is for those like it alone; None: for any."""
    stock_us: float
    table_us: float
    gain: float
    """Stock NCCL's time over the table's."""
    gain_high: float
    """Upper bound of the gain."""
    promised: float
    """The gain that the table states."""
    recorded_stock_us: float
    recorded_table_us: float
    suspicion: Literal["slower_than_promised", "slower_than_recorded"] | None
    """The fault beyond the noise; None: there is none."""


class WatchDocument(Document):
    """`watch`: whether a host is still the one that a table was tuned for."""

    schema_version: Literal[8] = SCHEMA_VERSION
    directory: str
    bundle_crc: str
    topology: str
    """Name of the table's machine."""
    host: str
    unchanged: bool
    """Whether no change was found."""
    complete: bool
    """Whether every check could be made."""
    findings: list[WatchFinding]
    unchecked: list[str]
    """Reasons why a check could not be made."""
    keys: list[WatchedKey]
    """Keys that were measured."""
    seconds: float
