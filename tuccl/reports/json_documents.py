"""The JSON documents of `--json`, one class for each form.

scripts/make/write_json_schemas.py writes the schema of each to docs/reference/schemas, and
docs/reference/json.md describes them.

Units: bytes are integers, times microseconds. A speedup is stock NCCL's time over the time given.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from tuccl.lookup_tables.table import Entry, Operation, Shape
from tuccl.reports.documents.document import SCHEMA_VERSION, Document
from tuccl.reports.documents.job_bench import JobBenchDocument
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import Obstacle, Runner
from tuccl.reports.report import KeyReport, RetunedReport
from tuccl.reports.step_document import StepDocument, StepSummary
from tuccl.reports.table_difference import Change
from tuccl.reports.table_parts import TablePart
from tuccl.workloads.step_calls import LeftOut


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

    schema_version: Literal[5] = SCHEMA_VERSION
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

    schema_version: Literal[5] = SCHEMA_VERSION
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

    schema_version: Literal[5] = SCHEMA_VERSION
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


class ShipDocument(Document):
    """`ship`: the content of the shipped directory."""

    schema_version: Literal[5] = SCHEMA_VERSION
    files: list[str]
    """The files of this table, with `tuccl.env`, which a job sources, last."""
    caveats: list[str]
    """Reasons not to rely on the table, and why the executor is not loaded."""


class ExportDocument(Document):
    """`export`: a table in a form for others' readers."""

    schema_version: Literal[5] = SCHEMA_VERSION
    file: str
    form: str
    """tuner-csv."""
    rows: int
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

    schema_version: Literal[5] = SCHEMA_VERSION
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

    schema_version: Literal[5] = SCHEMA_VERSION
    directory: str
    bundle_crc: str
    """Sum of the table that jobs load."""
    versions: list[KeptVersion]
    """The oldest first; without the current table where an earlier release shipped it."""


class RollbackDocument(Document):
    """`rollback`: the version that is current now."""

    schema_version: Literal[5] = SCHEMA_VERSION
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

    schema_version: Literal[5] = SCHEMA_VERSION
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


class DoctorNccl(Document):
    """The NCCL that a job would load."""

    version: str
    path: str
    source: str
    """Where it was found, in words."""


class DoctorFinding(Document):
    """A finding of one check."""

    check: str
    severity: Literal["ok", "note", "warning", "error"]
    text: str
    mend: str
    """The line that mends it; empty where nothing is to be done."""


class DoctorDocument(Document):
    """`doctor`: whether a job that starts here would load its table."""

    schema_version: Literal[5] = SCHEMA_VERSION
    directory: str | None
    """Shipped directory that was named; None: the environment was looked at as it is."""
    loads: bool
    """Whether the job would load its table and follow it: no finding is an error."""
    bundle_crc: str | None
    """Sum of the table; None: there is none that can be read."""
    nccl: DoctorNccl | None
    """None: which NCCL the job loads is not known."""
    findings: list[DoctorFinding]
    time_s: float | None = None
    """This host's clock at the end, in seconds since 1970; None from earlier releases."""


class CheckedHost(Document):
    """A host of `ship --check`."""

    host: str
    failure: str
    """Why there is no diagnosis; empty where there is one."""
    diagnosis: DoctorDocument | None
    clock_ahead_s: float = 0.0
    """Seconds that its clock is ahead of that of the host that asks, at least; 0 below 5 s."""


class ShipCheckDocument(Document):
    """`ship --check`: whether jobs on all hosts would load the same table."""

    schema_version: Literal[5] = SCHEMA_VERSION
    directory: str
    loads: bool
    """Whether all hosts answered, would load the table, and have the same one and one NCCL."""
    disagreements: list[str]
    """Differences between the hosts that can hang a job, one sentence each."""
    warnings: list[str]
    """Differences that cannot, one sentence each."""
    hosts: list[CheckedHost]


class DefectDocument(Document):
    """A defect of a schedule, with its place where it has one."""

    kind: str
    rank: int | None
    threadblock: int | None
    step: int | None
    message: str


class AcrossHostsDocument(Document):
    """A schedule cut into stages inside nodes and rounds on the network."""

    node_sizes: list[int]
    rounds: int | None
    messages: list[int]
    """Messages of each round."""
    stages: int | None
    """Stages in which a node has something to do."""
    scratch_chunks: int | None
    """Most scratch chunks of a rank."""
    why_not: str | None


class VerifyDocument(Document):
    """`verify`: whether a schedule is right."""

    schema_version: Literal[5] = SCHEMA_VERSION
    file: str
    algorithm: str
    proved: bool
    defects: list[DefectDocument]
    beyond_msccl_limits: list[str]
    """Limits of MSCCL runtimes that the schedule exceeds, which does not make it wrong."""
    across_hosts: AcrossHostsDocument | None = None
    """For the nodes of `--nodes`."""


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

    schema_version: Literal[5] = SCHEMA_VERSION
    shape: Shape
    """Shape of the communicator of all GPUs."""
    data_type: str
    in_place: bool
    graphs: bool
    versions: str
    rounds: int
    seconds: float
    tables: list[BenchedTable]
    comparison: ComparedTables | None
    """None where one table was given."""


class WorkloadOrigin(Document):
    """The recording that a workload was read from."""

    kind: str
    """nccl_log, kineto, inspector, csv or recorded."""
    files: list[str]
    left_out: list[str]
    """Parts that were left out, and why."""


class WorkloadCallFigures(Document):
    """The calls of one operation and size on communicators of one shape."""

    operation: Operation
    datatype: str | None
    """NCCL's name; None: the recording does not say."""
    reduction: str | None
    """nccl-tests' name; None: none, or the recording does not say."""
    size_bytes: int
    """As nccl-tests counts it."""
    ranks: int
    """Ranks of the communicator."""
    nodes: int | None
    """Nodes of the communicator; None: unknown."""
    siblings: int
    """Communicators of this shape that make the call at the same time."""
    in_place: bool | None
    """None: unknown."""
    graph: bool | None
    """Whether CUDA graphs launch the calls; None: unknown."""
    calls_per_step: float
    """Calls of one rank."""
    bytes_per_step: float
    us_per_call: float | None
    """Time in the recording, with the wait for other ranks; None: not in it."""
    share_of_calls: float
    """Share of all calls of one rank, also of operations that no table has; 0 to 1."""
    share_of_bytes: float


class WorkloadNotTuned(Document):
    """Calls of an operation that no table has."""

    operation: str
    calls_per_step: float
    """Mean over the recorded ranks."""
    bytes_per_step: float
    share_of_calls: float
    share_of_bytes: float


class WorkloadDocument(Document):
    """`workload import` and `show`: the collectives that a job calls."""

    schema_version: Literal[5] = SCHEMA_VERSION
    file: str
    """The workload's file."""
    source: WorkloadOrigin
    ranks: int | None
    """Ranks of the job; None: unknown."""
    nodes: int | None
    """Nodes of the job; None: unknown."""
    steps: float | None
    """Steps that were recorded; None: unknown, and figures are of the whole recording."""
    calls_per_step: float
    """All calls of one rank."""
    bytes_per_step: float
    calls: list[WorkloadCallFigures]
    not_tuned: list[WorkloadNotTuned]


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

    schema_version: Literal[5] = SCHEMA_VERSION
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
    rounds: int
    seconds: float
    keys: list[UpgradedKeyDocument]
    old_gain: BenchedGain
    """Geometric mean over all keys, as the next three."""
    new_gain: BenchedGain
    stock_change: BenchedGain
    table_change: BenchedGain


DOCUMENTS: dict[str, type[BaseModel]] = {
    "table": TableDocument,
    "retune": RetuneDocument,
    "retune-plan": RetunePlanDocument,
    "explain": ExplainDocument,
    "ship": ShipDocument,
    "ship-check": ShipCheckDocument,
    "show": ShowDocument,
    "export": ExportDocument,
    "history": HistoryDocument,
    "rollback": RollbackDocument,
    "diff": DiffDocument,
    "doctor": DoctorDocument,
    "verify": VerifyDocument,
    "bench": BenchDocument,
    "workload": WorkloadDocument,
    "bench-upgrade": BenchUpgradeDocument,
    "workload-bench": JobBenchDocument,
}
"""Documents by the name of the schema's file; `init` and `tune` print that of `table`."""
