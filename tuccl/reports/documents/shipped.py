"""The JSON documents of `ship`, `export` and `show`."""

from __future__ import annotations

from typing import Literal

from lookup_tables.table import Operation, Shape
from tuccl.reports.documents.document import SCHEMA_VERSION, Document
from tuccl.reports.documents.step import StepSummary
from tuccl.reports.evidence import Evidence
from tuccl.reports.table_parts import TablePart


class ShipDocument(Document):
    """`ship`: the content of the shipped directory."""

    schema_version: Literal[8] = SCHEMA_VERSION
    files: list[str]
    """The files of this table, with `tuccl.env`, which a job sources, last."""
    caveats: list[str]
    """Reasons not to rely on the table, and why the executor is not loaded."""


class ExportDocument(Document):
    """`export`: a table in a form for others' readers."""

    schema_version: Literal[8] = SCHEMA_VERSION
    file: str
    form: str
    """tuner-csv or thresholds."""
    rows: int
    """Rows of the CSV, or communicators with a threshold."""
    notes: list[str]
    """Contents of the table that the form cannot hold, and reasons not to rely on it."""


class ShownMachine(Document):
    """The size of the tuned machine."""

    gpus: int
    """GPUs of all nodes."""
    nodes: int


class ShownEntry(Document):
    """An entry of a shipped table."""

    operation: Operation
    shape: Shape
    placement: str | None
    """GPUs of a communicator, where the entry is for those like it alone (NCCL's estimate, where
    nothing tells the GPUs); None: wherever ranks sit."""
    min_bytes: int
    max_bytes: int
    """Largest size, inclusive."""
    runs: str
    """The setting or schedule that won, in words."""
    builtin: str
    """NCCL's setting for jobs without the executor, in words; `-`: NCCL's own choice."""
    stock_us: float
    """Stock NCCL's time."""
    time_us: float | None
    """The winner's time; None: a bundle does not keep that of schedules."""
    speedup: float | None
    low: float | None
    """Lower bound of the winner's gain over its reference; None: none was computed."""
    high: float | None
    times: Evidence | None
    """Evidence behind the times; None: unknown."""


class ShowDocument(Document):
    """`show`: the table in a shipped directory."""

    schema_version: Literal[8] = SCHEMA_VERSION
    directory: str
    topology: str
    fingerprint: str
    machine: ShownMachine | None
    """None: the manifest does not say."""
    gpu_models: list[str]
    """PCI `vendor:device` of the machine's GPUs; empty: unknown."""
    tuccl: str | None
    """Release that shipped the table; None: there is no manifest."""
    nccl: str | None
    """Version of NCCL that was measured; None: none was, or it is unknown."""
    times: Evidence | None
    """The weakest evidence behind any of the times; None: unknown."""
    tuned_from: str | None
    """When the first entry was tuned: ISO 8601, UTC."""
    tuned_to: str | None
    bundle_crc: str
    profile: dict[str, str]
    step: StepSummary | None
    """The gain of a step of the workload that was tuned; None: none was, or the manifest does not
    say."""
    shapes: list[Shape]
    parts: list[TablePart]
    """Measured and modelled parts; empty where the Parquet file does not say."""
    entries: list[ShownEntry]
    files: list[str]
    """Files of the manifest, by path in the directory."""
    problems: list[str]
    """Contradictions in the directory, one sentence each."""
