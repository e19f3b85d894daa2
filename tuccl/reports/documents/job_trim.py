"""The JSON document of `tuccl workload trim --json`."""

from __future__ import annotations

from typing import Literal

from lookup_tables.table import Operation, Shape
from tuccl.reports.documents.bench import BenchedGain
from tuccl.reports.documents.document import SCHEMA_VERSION, Document
from tuccl.reports.documents.job_bench import JobRoundFigures, JobRunFigures


class JobPartFigures(Document):
    """A part of the table, and what it does to the job."""

    shape: Shape | None
    """Communicators of its entries; null: the process profile."""
    operation: Operation | None
    """Operation of its entries; null: all of the shape, or the process profile."""
    ratio: float
    """The job's speed with the part over that without."""
    low: float
    """Lower bound; those of all parts hold together with 90 %."""
    high: float
    """Upper bound; those of all parts hold together with 90 %."""
    left_out: bool
    """Whether the job is slower with it, beyond the noise."""


class JobPartRound(Document):
    """A job with some parts of a table and with all others."""

    parts: list[int]
    """Numbers of the first run's parts in `parts`, from 0; the second run has the others."""
    first: JobRunFigures
    second: JobRunFigures


class JobTrimDocument(Document):
    """`workload trim`: what each part of a table does to a job, and the job with what is left."""

    schema_version: Literal[8] = SCHEMA_VERSION
    job: list[str]
    """The command and its arguments."""
    place: str
    bundle_crc: str
    """Checksum of the whole table's bundle."""
    metric: str | None
    """Regular expression of the figure; None: the figure is the run's time in seconds."""
    skip: int
    """Numbers at the beginning of each run that do not count."""
    higher_is_better: bool
    parts: list[JobPartFigures]
    part_rounds: list[JobPartRound]
    rounds: list[JobRoundFigures]
    """Without a table and with what is left; with the whole one where all or nothing is left."""
    gain: BenchedGain
    """The job's speed by these rounds, with the table over that without."""
    load_seen: bool
    """Whether NCCL's log shows that the job loaded the table; false: there is no such log."""
    slower: bool
    """Whether the job is slower with it, beyond the noise."""
    shipped: str | None
    """Directory that got what is left; null: nothing was written."""
