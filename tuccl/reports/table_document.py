"""`TableDocument`: a finished run with what a job here gains from it, as JSON has it.

A speedup is stock NCCL's time over the time given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lookup_tables.collective import Collective
from lookup_tables.table import Entry, Shape, Table
from tuccl.reports.entries import EntryFigures, placed_entries_of
from tuccl.reports.evidence import Evidence
from tuccl.reports.explanation import KeyApart, WithoutExecutor, apart_of
from tuccl.reports.job_gains import KeyGain, Obstacle
from tuccl.reports.keys import Runner
from tuccl.reports.report import KeyReport, RetunedReport
from tuccl.reports.step_gain import StepGain
from tuccl.reports.tuning_result import TuningResult


@dataclass(frozen=True, slots=True)
class KeyInJob:
    """The outcome for a key in a job here."""

    runner: Runner
    """The component that decides: executor, plugin, NCCL under the profile, or NCCL alone."""
    runs: str
    """The setting or schedule that runs, in words."""
    time_us: float
    speedup: float
    low: float | None
    """Lower bound of the speedup; each bound holds with 97.5 %."""
    high: float | None
    """Upper bound of the speedup; None: unknown."""
    without_executor: WithoutExecutor
    apart: KeyApart | None
    """None: the winning schedule runs, or no schedule won."""


class TunedKey(KeyReport):
    """The decision for one operation and size, and its outcome in a job."""

    job: KeyInJob


@dataclass(frozen=True, slots=True)
class JobMeans:
    """The gains of a job here: geometric means over all keys."""

    speedup: float
    speedup_without_executor: float
    keys_by_runner: Mapping[Runner, int]


@dataclass(frozen=True, slots=True)
class ReasonApart:
    """Why schedules of the table do not run in a job here."""

    reason: Obstacle
    text: str
    """The reason for people, with the remedy."""
    keys: int
    """Number of keys that it concerns."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The part of the table that no job here runs."""

    speedup: float
    """Geometric mean over all keys if every schedule of the table ran."""
    reasons: tuple[ReasonApart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDocument:
    """`init`, `tune` and `table`: the tuned table."""

    topology: str
    fingerprint: str
    times: Evidence
    """Whether the times were measured with NCCL, modelled, or taken on a stand-in for NCCL."""
    caveats: tuple[str, ...]
    """Reasons not to rely on the table, and why some of its schedules do not run here."""
    job: JobMeans
    apart: Apart | None
    """None: a job here runs every schedule of the table."""
    profile: Mapping[str, str]
    """The process profile: variables of the environment."""
    weights: Mapping[str, float]
    """Weights of operations and shapes in the choice of the profile; 1 if none is given."""
    shapes: Mapping[str, Shape]
    """Communicator shapes by name; empty: that of all GPUs alone."""
    step: StepGain | None
    """The gain of a step of the workload that was tuned; None: options named the keys."""
    entries: Sequence[Entry]
    """The entries of the bundle. `time_us` is the winner's, also if no job here runs it."""
    placed: tuple[EntryFigures, ...]
    """Entries for communicators that NCCL's estimates tell from others of their shape, which come
    before those of the shape."""
    keys: tuple[TunedKey, ...]
    """All keys that were tuned, also those without an entry."""
    table: Path
    """The Parquet file."""
    bundle: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RetunedPart:
    """Keys of one communicator shape and operation after a change."""

    name: str
    """`whole`, `node`, `rail` or `pairs`."""
    shape: Shape
    operation: Collective
    keys: int
    fate: Literal["kept", "measured again", "measured for the first time"]
    why: str
    """The changes that touch its communicators, or why none does, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetunePlanResult:
    """`retune --dry-run`: the changes, and what would be measured again."""

    changes: Sequence[str]
    """The changes, one sentence each; empty if the table still fits."""
    before: str
    """Fingerprint of the table's machine."""
    now: str
    """Fingerprint of the machine now."""
    parts: tuple[RetunedPart, ...]
    """Empty if nothing changed."""
    gone: Mapping[str, Shape]
    """Shapes of the table that the machine has no communicators of any more, by name."""
    kept: int
    """Keys that keep their entries."""
    measured: int
    """Keys to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneResult(TableDocument):
    """`retune`: the changes, and the table that is current now."""

    changes: Sequence[str]
    """The changes, one sentence each; empty if the table still fits."""
    before: str
    """Fingerprint of the old table's machine."""
    now: str
    """Fingerprint of the machine now."""
    tuned: bool
    """Whether keys were tuned anew."""
    kept: Path | None
    """Directory of the old run, if a new run replaced it."""
    parts: tuple[RetunedPart, ...]
    """The plan; empty if nothing changed."""
    against_old: RetunedReport | None
    """The table against the old one; None: nothing was measured or kept."""


def table_document(result: TuningResult) -> TableDocument:
    """Return a finished run with what a job here gains from it."""
    table, gains, apart = result.table, result.gains, None
    if gains.obstacles:
        reasons = (ReasonApart(o, o.sentence, count) for o, count in gains.obstacles.items())
        apart = Apart(gains.speedup_with_all_schedules, tuple(reasons))
    return TableDocument(
        topology=table.topology_name,
        fingerprint=table.fingerprint,
        times=gains.evidence,
        caveats=gains.caveats,
        job=JobMeans(gains.speedup, gains.speedup_without_executor, gains.runners),
        apart=apart,
        profile=table.profile,
        weights=result.report.weights,
        shapes=result.report.shapes,
        step=result.step,
        entries=table.entries,
        placed=tuple(placed_entries_of(table)),
        keys=tuple(TunedKey(**dict(gain.key), job=_in_job(gain, table)) for gain in gains.keys),
        table=result.run.table,
        bundle=result.run.bundle,
    )


def _in_job(gain: KeyGain, table: Table) -> KeyInJob:
    return KeyInJob(
        gain.runner,
        gain.runs,
        gain.table_us,
        gain.speedup,
        gain.gain.low,
        gain.gain.high,
        WithoutExecutor(gain.without_executor, gain.without_executor_us),
        apart_of(gain, table),
    )
