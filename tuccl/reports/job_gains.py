"""`JobGains`: the gains of a job from a table on this installation, and the gains it misses.

A table may hold more than a job can run: the executor serves hosts with up to eight NVIDIA GPUs
each, runs plans of phases and schedules in rounds across hosts, has to be built, and is preloaded
only for measured schedules. Every output that states the gain of a table counts only choices that a
job runs here; schedules that it does not run are listed apart, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lookup_tables.bundles.bundle import Bundle, BundleEntry
from lookup_tables.confirmation import Confirmation, Reference
from lookup_tables.program_header import MOST_RANKS, executor_serves, runs_across_hosts
from lookup_tables.table import Entry, Key, Table
from tuccl.reports.choice_text import describe_schedule, runs_text
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.keys import (
    Gain,
    KeyFigures,
    Runner,
    Verdict,
    frame_of,
    geometric_mean_of,
)
from tuccl.reports.report import ComparisonReport, KeyReport, Report
from tuccl.search.statistics.intervals import START_ERROR, Interval
from tuccl.search.statistics.sums import log_widths, together

if TYPE_CHECKING:
    import pandas as pd

EACH_BOUND = 0.975
"""Confidence of each bound of a key's gain."""
_NVIDIA = "10de:"
"""Prefix of the PCI ids of NVIDIA's devices."""


class Obstacle(StrEnum):
    """Why a job here does not run a schedule of the table."""

    ACROSS_HOSTS = "across_hosts"
    TOO_MANY_GPUS = "too_many_gpus"
    NOT_NVIDIA = "not_nvidia"
    NOT_MEASURED = "not_measured"
    NOT_BUILT = "not_built"

    @property
    def sentence(self) -> str:
        """The reason for people, with the remedy."""
        return _SENTENCES[self]

    @property
    def is_final(self) -> bool:
        """Whether the user cannot remove the obstacle."""
        return self in {Obstacle.ACROSS_HOSTS, Obstacle.TOO_MANY_GPUS, Obstacle.NOT_NVIDIA}


_SENTENCES = {
    Obstacle.ACROSS_HOSTS: (
        "no release of TuCCL runs schedules of this kind across hosts: "
        "`tuccl init --backend nccl,executor` on the GPUs searches those that it runs"
    ),
    Obstacle.TOO_MANY_GPUS: (
        f"no release of TuCCL runs schedules on more than {MOST_RANKS} GPUs of a host yet"
    ),
    Obstacle.NOT_NVIDIA: "the executor runs on NVIDIA GPUs only",
    Obstacle.NOT_MEASURED: (
        "`tuccl ship` leaves the executor off until schedules are measured: "
        "`tuccl init --backend nccl,executor` on the GPUs does it"
    ),
    Obstacle.NOT_BUILT: (
        "this installation has no executor: `tuccl build-executor`, then `tuccl ship` again"
    ),
}


@dataclass(frozen=True, slots=True)
class WithoutExecutor:
    """The outcome for a key if the executor is not preloaded."""

    runner: Runner
    time_us: float


@dataclass(frozen=True, slots=True)
class KeyApart:
    """The winning schedule of a key that no job here runs."""

    schedule: str
    time_us: float | None
    """None: a bundle does not keep it."""
    speedup: float | None
    reason: Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGain(KeyFigures):
    """The gain of a job for one operation and size.

    Figures are those of the decision, and each bound of `gain` holds with 97.5 %; or they are those
    of jobs with the whole table, whose bounds hold together at 95 % over all keys.
    """

    table_us: float
    gain: Gain
    without_executor: WithoutExecutor
    apart: KeyApart | None
    """None: the winning schedule runs, or no schedule won."""
    decision: KeyReport
    entry: Annotated[Entry | None, Field(exclude=True)]
    own_choice: Annotated[Gain, Field(exclude=True)]
    """That of NCCL's own choice under the profile: of calls near the key that no entry serves."""
    is_seen: bool = False
    """Whether the figures are those of jobs with the whole table."""

    @property
    def speedup(self) -> float:
        """Stock NCCL's time over the time in a job here."""
        return self.gain.ratio

    @property
    def obstacle(self) -> Obstacle | None:
        """Why the winning schedule does not run here."""
        return None if self.apart is None else self.apart.reason


@dataclass(frozen=True)
class JobGains:
    """The gains of a job from a table on this installation, in the order of the report's keys."""

    evidence: Evidence
    keys: tuple[KeyGain, ...]
    learned: tuple[tuple[Key, KeyFigures], ...] = ()
    """Entries at sizes that are no keys of the report: a job learned them."""
    recorded: bool = False
    """Whether the job is one of a machine whose record was replayed, and not of this one."""
    assumed: str = ""
    """See `Report.assumed`."""

    @property
    def job(self) -> str:
        """The job that gains, in words."""
        return "a job on the recorded machine" if self.recorded else "a job here"

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each key; see `frame_of`."""
        return frame_of(
            self.keys,
            without_executor_us=[key.without_executor.time_us for key in self.keys],
            apart_us=[key.apart.time_us if key.apart else key.table_us for key in self.keys],
            obstacle=[key.obstacle for key in self.keys],
        )

    @property
    def speedup(self) -> float:
        """Speedup of a job here: geometric mean over all keys."""
        return geometric_mean_of(self.frame["gain"])

    @property
    def speedup_without_executor(self) -> float:
        """Speedup with the plugin and the process profile alone."""
        return geometric_mean_of(self.frame["stock_us"] / self.frame["without_executor_us"])

    @property
    def speedup_with_all_schedules(self) -> float:
        """Speedup if every schedule of the table ran."""
        return geometric_mean_of(self.frame["stock_us"] / self.frame["apart_us"])

    @property
    def slower(self) -> tuple[KeyGain, ...]:
        """Keys that take longer in a job with the whole table, beyond the noise."""
        return tuple(k for k in self.keys if k.is_seen and k.gain.verdict is Verdict.SLOWER)

    @property
    def runners(self) -> Mapping[Runner, int]:
        """Number of keys by runner, in the order of `Runner`."""
        counts = self.frame["runner"].value_counts()
        return {runner: int(counts[runner]) for runner in Runner if runner in counts}

    @property
    def obstacles(self) -> Mapping[Obstacle, int]:
        """Number of keys by the obstacle to their schedule, in the order of `Obstacle`."""
        counts = self.frame["obstacle"].value_counts()
        return {each: int(counts[each]) for each in Obstacle if each in counts}

    @property
    def caveats(self) -> tuple[str, ...]:
        """Reasons not to rely on the table, and why some of its schedules do not run."""
        return (*self.doubts, *(obstacle.sentence for obstacle in self.obstacles))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to rely on the times."""
        return tuple(filter(None, (self.evidence.caveat, self.assumed)))


def job_gains(table: Table, report: Report, *, has_executor: bool) -> JobGains:
    """The gains of a job from a table.

    Args:
        table: The table of a run.
        report: The report of the same run.
        has_executor: Whether this installation has the executor's library.
    """
    evidence = evidence_of(table, report.source)
    entries = {
        (entry.key.operation, entry.tuned_bytes, entry.key.shape): entry for entry in table.entries
    }
    start_error = max(START_ERROR, report.start_error)
    keys = []
    for key in report.keys:
        entry = entries.get((key.operation, key.size_bytes, key.shape))
        obstacle = None
        if entry is not None:
            obstacle = obstacle_to(entry, table, evidence, has_executor=has_executor)
        keys.append(_key_gain(key, entry, table, obstacle, start_error))
    known = {(key.operation, key.size_bytes, key.shape) for key in keys}
    learned = tuple(
        (entry.key, entry_in_job(entry, table, evidence, has_executor=has_executor))
        for name, entry in entries.items()
        if name not in known
    )
    if report.whole is not None and not any(key.obstacle for key in keys):
        keys = [_as_seen(key) for key in keys]
    recorded = report.recorded_backend is not None
    return JobGains(evidence, tuple(keys), learned, recorded, report.assumed)


def _as_seen(key: KeyGain) -> KeyGain:
    """Return a key with what jobs with the whole table got, where they timed it."""
    seen = key.decision.whole
    if seen is None:
        return key
    alone = key.without_executor
    without_us = seen.table_us
    if key.runner in {Runner.EXECUTOR, Runner.NCCL}:
        # Not timed in these jobs: as far from stock NCCL's time as it was.
        without_us = alone.time_us * seen.stock_us / key.stock_us
    return replace(
        key,
        stock_us=seen.stock_us,
        table_us=seen.table_us,
        gain=Gain(seen.ratio, seen.low, seen.high),
        without_executor=replace(alone, time_us=without_us),
        is_seen=True,
    )


def obstacle_to(
    entry: Entry | BundleEntry, table: Table | Bundle, evidence: Evidence, *, has_executor: bool
) -> Obstacle | None:
    """Why a job here does not run the entry's schedule; None: it runs, or the entry has none."""
    shape = entry.key.shape
    if entry.schedule is None:
        return None
    if shape.nodes > 1 and not runs_across_hosts(table.schedules, entry.schedule.schedule):
        return Obstacle.ACROSS_HOSTS
    if not executor_serves(shape):
        return Obstacle.TOO_MANY_GPUS
    if not all(model.startswith(_NVIDIA) for model in table.gpu_models):
        return Obstacle.NOT_NVIDIA
    if evidence is not Evidence.MEASURED:
        return Obstacle.NOT_MEASURED
    return None if has_executor else Obstacle.NOT_BUILT


def entry_in_job(
    entry: Entry | BundleEntry,
    table: Table | Bundle,
    evidence: Evidence,
    *,
    has_executor: bool,
    placement: str | None = None,
) -> KeyFigures:
    """Return the figures of an entry in a job, if nothing else is known of its key.

    Args:
        entry: The entry.
        table: Its table or bundle.
        evidence: Evidence behind its times.
        has_executor: Whether the installation has the executor.
        placement: As for `KeyFigures`.
    """
    runner, time_us = Runner.NCCL, None if table.profile else entry.default_time_us
    if table.profile:
        runner = Runner.PROFILE
    if entry.builtin is not None and entry.builtin_time_us:
        runner, time_us = Runner.PLUGIN, entry.builtin_time_us
    obstacle = obstacle_to(entry, table, evidence, has_executor=has_executor)
    if entry.schedule is not None and obstacle is None:
        runner, time_us = Runner.EXECUTOR, entry.time_us if isinstance(entry, Entry) else None
    shown = entry.confirmation if isinstance(entry, Entry) else None
    won = runner is Runner.EXECUTOR or (runner is Runner.PLUGIN and entry.schedule is None)
    stock_us = entry.default_time_us
    gain = _entry_gain(stock_us / time_us, shown if won else None) if time_us else None
    if won and isinstance(entry, Entry) and (in_job := entry.in_job) is not None:
        stock_us, time_us = in_job.stock_us, in_job.table_us
        gain = Gain(in_job.ratio, in_job.low, in_job.high)
    return KeyFigures(
        operation=entry.key.operation,
        size_bytes=entry.tuned_bytes if isinstance(entry, Entry) else entry.key.min_bytes,
        shape=entry.key.shape,
        placement=placement,
        stock_us=stock_us,
        table_us=time_us,
        gain=gain,
        runner=runner,
        runs=runs_text(runner, entry, table),
        starts=None if shown is None else shown.starts,
        provenance=entry.provenance if isinstance(entry, Entry) else None,
    )


def _entry_gain(ratio: float, shown: Confirmation | None) -> Gain:
    """Return the gain of an entry, with bounds as far from it as those of its comparison."""
    if shown is None:
        return Gain(ratio, None, None)
    high = None if shown.high is None else ratio * shown.high / shown.ratio
    return Gain(ratio, ratio * shown.low / shown.ratio, high)


def _key_gain(
    key: KeyReport,
    entry: Entry | None,
    table: Table,
    obstacle: Obstacle | None,
    start_error: float,
) -> KeyGain:
    alone, alone_us = Runner.NCCL, key.stock_us
    if entry is not None and entry.builtin_time_us is not None:
        alone, alone_us = Runner.PLUGIN, entry.builtin_time_us
    elif table.profile:
        alone, alone_us = Runner.PROFILE, _under_profile_us(key)
    runner, time_us = alone, alone_us
    if entry is not None and entry.schedule is not None and obstacle is None:
        runner, time_us = Runner.EXECUTOR, entry.time_us
    own_choice = Gain(1.0, 1.0, 1.0)
    if table.profile:
        own_choice = _gain(key, Runner.PROFILE, _under_profile_us(key), start_error)
    confirmation = None if entry is None else entry.confirmation
    apart = None
    if obstacle is not None and entry is not None:
        won = describe_schedule(entry, table)
        apart = KeyApart(won, entry.time_us, key.stock_us / entry.time_us, obstacle)
    return KeyGain(
        operation=key.operation,
        size_bytes=key.size_bytes,
        shape=key.shape,
        stock_us=key.stock_us,
        table_us=time_us,
        gain=_gain(key, runner, time_us, start_error),
        runner=runner,
        runs=runs_text(runner, entry, table),
        starts=None if confirmation is None else confirmation.starts,
        provenance=None if entry is None else entry.provenance,
        without_executor=WithoutExecutor(alone, alone_us),
        apart=apart,
        decision=key,
        entry=entry,
        own_choice=own_choice,
    )


def _gain(key: KeyReport, runner: Runner, time_us: float, start_error: float) -> Gain:
    ratio, widths = key.stock_us / time_us, _widths(key, runner, start_error)
    high = ratio * math.exp(widths.high) if widths.high < math.inf else None
    return Gain(ratio, ratio * math.exp(-widths.low), high)


def _under_profile_us(key: KeyReport) -> float:
    """The time of NCCL's own choice under the profile, from starts in turn with stock NCCL.

    Without such starts it and stock NCCL's time are of different starts.
    """
    in_turn = key.profile_ratio
    return key.profile_default_us if in_turn is None else key.stock_us / in_turn.ratio


def _widths(key: KeyReport, runner: Runner, start_error: float) -> Interval:
    """Return the distances of a key's gain over stock NCCL from its bounds, on logarithms."""
    if runner is Runner.NCCL:
        return Interval(0.0, 0.0)
    links = []
    reference = Reference.PROFILE
    if runner is Runner.EXECUTOR and key.schedule is not None:
        links.append(key.schedule)
        reference = key.schedule.reference
    if key.builtin is not None and (runner is Runner.PLUGIN or reference is Reference.BUILTIN):
        links.append(key.builtin)
        reference = key.builtin.reference
    widths = [_compared(link) for link in links]
    if reference is Reference.PROFILE:
        widths.append(_profile(key, start_error))
    return together(widths)


def _compared(compared: ComparisonReport) -> Interval:
    high = math.inf if compared.upper_bound is None else compared.upper_bound
    known = Interval(compared.lower_bound, high)
    return log_widths(compared.ratio, known, compared.confidence, EACH_BOUND)


def _profile(key: KeyReport, start_error: float) -> Interval:
    """Return the distances of the profile's own gain: two starts differ, if none were in turn."""
    in_turn = key.profile_ratio
    if in_turn is None:
        return Interval(start_error, start_error)
    return log_widths(in_turn.ratio, Interval(in_turn.low, in_turn.high), EACH_BOUND, EACH_BOUND)
