"""The JSON documents of `init`, `tune`, `table`, `retune` and `explain`.

A speedup is stock NCCL's time over the time given.
"""

from __future__ import annotations

from typing import Literal

from lookup_tables.table import Entry, Operation, Shape
from tuccl.reports.documents.document import SCHEMA_VERSION, Document
from tuccl.reports.documents.step import StepDocument
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import Obstacle, Runner
from tuccl.reports.report import KeyReport, RetunedReport


class WithoutExecutor(Document):
    """The outcome for a key where the executor is not preloaded."""

    runner: Runner
    time_us: float


class KeyApart(Document):
    """The winning schedule of a key, where no job here runs it."""

    schedule: str
    time_us: float
    speedup: float
    reason: Obstacle


class KeyInJob(Document):
    """The outcome for a key in a job here."""

    runner: Runner
    """The component that decides: executor, plugin, NCCL under the profile, or NCCL alone."""
    runs: str
    """The setting or schedule that runs, in words."""
    time_us: float
    speedup: float
    without_executor: WithoutExecutor
    apart: KeyApart | None
    """None where the winning schedule runs, or no schedule won."""


class TunedKey(KeyReport):
    """The decision for one operation and size, and its outcome in a job."""

    job: KeyInJob


class JobMeans(Document):
    """The gains of a job here: geometric means over all keys."""

    speedup: float
    speedup_without_executor: float
    keys_by_runner: dict[Runner, int]


class ReasonApart(Document):
    """Why schedules of the table do not run in a job here."""

    reason: Obstacle
    text: str
    """The reason for people, with the remedy."""
    keys: int
    """Number of keys that it concerns."""


class Apart(Document):
    """The part of the table that no job here runs."""

    speedup: float
    """Geometric mean over all keys if every schedule of the table ran."""
    reasons: list[ReasonApart]


class PlacedEntry(Document):
    """An entry for some communicators of a shape."""

    operation: Operation
    shape: Shape
    placement: str
    """GPUs of one of the communicators."""
    min_bytes: int
    max_bytes: int
    """Largest size, inclusive."""
    tuned_bytes: int
    runs: str
    """NCCL's setting, in words."""
    stock_us: float
    time_us: float
    speedup: float
    low: float | None
    """Lower bound of the gain over its reference; None: none was computed."""
    high: float | None


class TableDocument(Document):
    """`init`, `tune` and `table`: the tuned table."""

    schema_version: Literal[8] = SCHEMA_VERSION
    topology: str
    fingerprint: str
    times: Evidence
    """Whether the times were measured with NCCL, modelled, or taken on a stand-in for NCCL."""
    caveats: list[str]
    """Reasons not to rely on the table, and why some of its schedules do not run here."""
    job: JobMeans
    apart: Apart | None
    """None where a job here runs every schedule of the table."""
    profile: dict[str, str]
    """The process profile: variables of the environment."""
    weights: dict[str, float]
    """Weights of operations and shapes in the choice of the profile; 1 where none is given."""
    shapes: dict[str, Shape]
    """Communicator shapes by name; empty: that of all GPUs alone."""
    step: StepDocument | None
    """The gain of a step of the workload that was tuned; None where options named the keys."""
    entries: list[Entry]
    """The entries of the bundle. `time_us` is the winner's, also where no job here runs it."""
    placed: list[PlacedEntry]
    """Entries for communicators that NCCL's estimates tell from others of their shape, which come
    before those of the shape."""
    keys: list[TunedKey]
    """All keys that were tuned, also those without an entry."""
    table: str
    """Path of the Parquet file."""
    bundle: str


class RetunedPart(Document):
    """Keys of one communicator shape and operation after a change."""

    name: str
    """`whole`, `node`, `rail` or `pairs`."""
    shape: Shape
    operation: Operation
    keys: int
    fate: Literal["kept", "measured again", "measured for the first time"]
    why: str
    """The changes that touch its communicators, or why none does, for people."""


class RetunePlanDocument(Document):
    """`retune --dry-run`: the changes, and what would be measured again."""

    schema_version: Literal[8] = SCHEMA_VERSION
    changes: list[str]
    """The changes, one sentence each; empty where the table still fits."""
    before: str
    """Fingerprint of the table's machine."""
    now: str
    """Fingerprint of the machine now."""
    parts: list[RetunedPart]
    """Empty where nothing changed."""
    gone: dict[str, Shape]
    """Shapes of the table that the machine has no communicators of any more, by name."""
    kept: int
    """Keys that keep their entries."""
    measured: int
    """Keys to measure."""


class RetuneDocument(TableDocument):
    """`retune`: the changes, and the table that is current now."""

    changes: list[str]
    """The changes, one sentence each; empty where the table still fits."""
    before: str
    """Fingerprint of the old table's machine."""
    now: str
    """Fingerprint of the machine now."""
    tuned: bool
    """Whether keys were tuned anew."""
    kept: str | None
    """Directory of the old run, where a new run replaced it."""
    parts: list[RetunedPart]
    """The plan; empty where nothing changed."""
    against_old: RetunedReport | None
    """The table against the old one; None: nothing was measured or kept."""


class ExplainDocument(Document):
    """`explain`: the choice that a job here runs for one call, and its reason."""

    schema_version: Literal[8] = SCHEMA_VERSION
    operation: Operation
    size_bytes: int
    shape: Shape
    times: Evidence
    caveats: list[str]
    job: KeyInJob | None
    """The outcome for the tuned size whose range holds the call's; None outside every range."""
    entry: Entry | None
    """Entry that the plugin finds for the call, also where no job here runs the winner."""
    placed: list[PlacedEntry]
    """Entries that it finds instead where NCCL's estimate is that of some communicators."""
    evidence: KeyReport | None
    tuned_from_bytes: int
    tuned_to_bytes: int
    profile: dict[str, str]
