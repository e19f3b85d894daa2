"""`TableDocument`: a finished run with what a job here gains from it, as JSON has it.

A speedup is stock NCCL's time over the time given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lookup_tables.collective import Collective
from lookup_tables.table import Entry, Shape
from tuccl.reports.entries import EntryFigures, placed_entries_of
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import KeyGain, Obstacle
from tuccl.reports.keys import Runner
from tuccl.reports.report import RetunedReport, WholeReport
from tuccl.reports.step_gain import StepGain
from tuccl.reports.tuning_result import TuningResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDocument:
    """`init`, `tune` and `table`: the tuned table."""

    topology: str
    fingerprint: str
    times: Evidence
    """Whether the times were measured with NCCL, modelled, or taken on a stand-in for NCCL."""
    caveats: tuple[str, ...]
    """Reasons not to rely on the table, and why some of its schedules do not run here."""
    speedup: float
    """Speedup of a job here: geometric mean over all keys, as the two below."""
    speedup_without_executor: float
    speedup_with_all_schedules: float
    """If every schedule of the table ran."""
    keys_by_runner: Mapping[Runner, int]
    obstacles: Mapping[Obstacle, int]
    """Number of keys whose schedule no job here runs, by the reason."""
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
    keys: tuple[KeyGain, ...]
    """All keys that were tuned, also those without an entry."""
    whole: WholeReport | None
    """The table as a whole against stock NCCL, in jobs of new processes; None: no jobs were run."""
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
    table, gains = result.table, result.gains
    return TableDocument(
        topology=table.topology_name,
        fingerprint=table.fingerprint,
        times=gains.evidence,
        caveats=gains.caveats,
        speedup=gains.speedup,
        speedup_without_executor=gains.speedup_without_executor,
        speedup_with_all_schedules=gains.speedup_with_all_schedules,
        keys_by_runner=gains.runners,
        obstacles=gains.obstacles,
        profile=table.profile,
        weights=result.report.weights,
        shapes=result.report.shapes,
        step=result.step,
        entries=table.entries,
        placed=tuple(placed_entries_of(table)),
        keys=gains.keys,
        whole=result.report.whole,
        table=result.run.table,
        bundle=result.run.bundle,
    )
