"""The JSON documents of `bench`, also of a table under two releases of NCCL."""

from __future__ import annotations

from typing import Literal

from lookup_tables.table import Operation, Shape
from tuccl.reports.documents.document import SCHEMA_VERSION, Document
from tuccl.reports.job_gains import Runner
from tuccl.search.trials.timing import Computation
from tuccl.workloads.step_calls import LeftOut


class BenchedTime(Document):
    """A time, with the bandwidths that nccl-tests derives from it."""

    time_us: float
    """Geometric mean over the rounds."""
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    rounds_us: list[float]


class BenchedGain(Document):
    """A ratio of two times; the bounds of all keys hold together at 95 %."""

    ratio: float
    low: float
    high: float


class BenchedKey(Document):
    """One operation and size under a table."""

    operation: Operation
    size_bytes: int
    shape: Shape
    """Shape of its communicators, all of which make the call at once."""
    placement: str | None
    """GPUs of a communicator, where NCCL's estimates tell them from others of the shape; None: all
    of them, wherever ranks sit."""
    count: int
    """Number of elements, as passed to NCCL's function."""
    redop: str
    stock: BenchedTime
    table: BenchedTime
    gain: BenchedGain
    """Gain of the table over stock NCCL."""
    promised: float | None
    """The gain that the table states; None where it states none for this size."""
    promised_low: float | None
    """Lower bound of that gain; None where the choice was not compared with stock NCCL."""
    promised_high: float | None
    """Upper bound of that gain; None as for the lower."""
    runner: Runner
    runs: str
    """The setting or schedule that runs, in words."""
    finding: Literal["slower_than_stock", "slower_than_promised"] | None
    """A shortfall beyond the noise."""


class BenchedStep(Document):
    """The communication of a step of the workload, with stock NCCL and with the table."""

    workload: str
    """16 hex digits over the workload."""
    steps: float | None
    """Steps that the recording covers; None: unknown, and times are of the whole recording."""
    stock_us: list[float]
    """Sum of the calls' times in each round, as if they ran one after another."""
    table_us: list[float]
    gain: BenchedGain
    predicted: float | None
    """The gain that the table states; None: it states none for these calls."""
    predicted_low: float | None
    """Lower bound of that gain; None where it is put together from those of single keys."""
    predicted_high: float | None
    short: bool
    """Whether the step gains less than predicted, beyond the noise."""
    untuned_share: float
    """Share of the step's bytes that are of operations that TuCCL does not tune."""
    left_out_share: float
    """Share of the bytes of calls whose communicators are not there."""
    left_out: list[LeftOut]


class BenchedTable(Document):
    """A table against stock NCCL."""

    place: str
    """The directory that was given."""
    bundle_crc: str
    profile: dict[str, str]
    executor: bool
    """Whether the executor was loaded."""
    keys: list[BenchedKey]
    mean: BenchedGain
    """Geometric mean over all keys."""
    step: BenchedStep | None
    """None where no workload was given."""


class ComparedKey(Document):
    """One operation and size under the second table against the first."""

    operation: Operation
    size_bytes: int
    shape: Shape
    placement: str | None
    """As in a table's keys."""
    gain: BenchedGain


class ComparedTables(Document):
    """The second table against the first, in the same rounds."""

    keys: list[ComparedKey]
    mean: BenchedGain


class BenchDocument(Document):
    """`bench`: tables against stock NCCL on this machine."""

    schema_version: Literal[8] = SCHEMA_VERSION
    shape: Shape
    """Shape of the communicator of all GPUs."""
    data_type: str
    in_place: bool
    graphs: bool
    computations: tuple[Computation, ...]
    """Computation beside calls while they were timed; empty: they were timed alone."""
    versions: str
    rounds: int
    seconds: float
    tables: list[BenchedTable]
    comparison: ComparedTables | None
    """None where one table was given."""


class UpgradedTimes(Document):
    """Times under the old and the new NCCL."""

    old_us: float
    """Geometric mean over the rounds, as `new_us`."""
    new_us: float


class UpgradedKeyDocument(Document):
    """One operation and size under both releases."""

    operation: Operation
    size_bytes: int
    shape: Shape
    placement: str | None
    """GPUs of a communicator, where NCCL's estimates tell them from others of the shape; None: all
    of them, wherever ranks sit."""
    entry: bool
    """Whether the table has an entry for it."""
    stock: UpgradedTimes
    table: UpgradedTimes
    old_gain: BenchedGain
    """Gain of the table over stock NCCL under the old release."""
    new_gain: BenchedGain
    stock_change: BenchedGain
    """Stock NCCL's time under the old release over that under the new one."""
    table_change: BenchedGain
    """The same with the table."""
    kept: BenchedGain
    """Gain under the new release over that under the old one."""
    effect: Literal["slower_than_stock", "no_gain", "slower", "less_gain"] | None
    """The worst that the new release does to the key beyond the noise; None: nothing."""


class BenchedNccl(Document):
    """A release of NCCL."""

    version: str
    path: str


class BenchUpgradeDocument(Document):
    """`bench --nccl` with another release than jobs load: what the upgrade changes."""

    schema_version: Literal[8] = SCHEMA_VERSION
    place: str
    """The directory that was given."""
    bundle_crc: str
    old: BenchedNccl
    new: BenchedNccl
    shape: Shape
    """Shape of the communicator of all GPUs."""
    data_type: str
    in_place: bool
    graphs: bool
    computations: tuple[Computation, ...]
    """Computation beside calls while they were timed; empty: they were timed alone."""
    rounds: int
    seconds: float
    keys: list[UpgradedKeyDocument]
    old_gain: BenchedGain
    """Geometric mean over all keys, as the next three."""
    new_gain: BenchedGain
    stock_change: BenchedGain
    table_change: BenchedGain
