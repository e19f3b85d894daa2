"""The JSON document of `tuccl workload bench --json`."""

from __future__ import annotations

from typing import Literal

from tuccl.reports.documents.bench import BenchedGain
from tuccl.reports.documents.document import SCHEMA_VERSION, Document


class JobRunFigures(Document):
    """A run of a job."""

    figure: float
    seconds: float
    """Time from its start to its end."""


class JobRoundFigures(Document):
    """A job without and with a table, one run after the other."""

    without: JobRunFigures
    with_table: JobRunFigures


class StepSaving(Document):
    """Time of a step that the table saves, predicted and measured."""

    workload: str
    """16 hex digits over the workload that the table was tuned for."""
    predicted_us: float
    """The collectives' time with stock NCCL less that with the table."""
    overlap_known: bool
    """Whether that counts exposed time alone; else it is as if nothing overlaps."""
    measured_us: float
    low_us: float
    high_us: float
    step_us: float
    """Time of a step without the table."""


class JobBenchDocument(Document):
    """`workload bench`: a job without and with a table, in turn."""

    schema_version: Literal[8] = SCHEMA_VERSION
    job: list[str]
    """The command and its arguments."""
    place: str
    bundle_crc: str
    executor: bool
    """Whether the table loads the executor."""
    metric: str | None
    """Regular expression of the figure; None: the figure is the run's time in seconds."""
    skip: int
    """Numbers at the beginning of each run that do not count."""
    higher_is_better: bool
    rounds: list[JobRoundFigures]
    gain: BenchedGain
    """The job's speed with the table over that without."""
    load_seen: bool
    """Whether NCCL's log shows that the job loaded the table; false: there is no such log."""
    saving: StepSaving | None
    """None: the table was tuned for no workload, or the figure is no time of a step with a unit."""
    slower: bool
    """Whether the job is slower with the table, beyond the noise."""
