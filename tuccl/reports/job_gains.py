"""`JobGains`: the gains of a job from a table on this installation, and the gains it misses.

A table may hold more than a job can run: the executor serves hosts with up to eight NVIDIA GPUs
each, runs plans of phases and schedules in rounds across hosts, has to be built, and is preloaded
only for measured schedules. Every output that states the gain of a table counts only choices that a
job runs here; schedules that it does not run are listed apart, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log

from lookup_tables.program_header import MOST_RANKS, executor_serves, runs_across_hosts
from lookup_tables.table import Entry, Table
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.report import KeyReport, Report
from tuccl.runtime import has_executor

_NVIDIA = "10de:"
"""Prefix of the PCI ids of NVIDIA's devices."""


class Runner(StrEnum):
    """The component that decides how a call runs."""

    EXECUTOR = "executor"
    """A schedule on the executor."""
    PLUGIN = "plugin"
    """One of NCCL's algorithms, chosen by the plugin."""
    PROFILE = "profile"
    """NCCL by itself, under the table's process profile."""
    NCCL = "nccl"
    """NCCL by itself."""


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
class KeyGain:
    """The gain of a job for one operation and size."""

    key: KeyReport
    entry: Entry | None
    runner: Runner
    time_us: float
    """Time of the call in a job here."""
    without_executor: Runner
    """Component that decides where the executor is not preloaded."""
    without_executor_us: float
    obstacle: Obstacle | None
    """Why the winning schedule does not run here; None: it runs, or no schedule won."""

    @property
    def speedup(self) -> float:
        """Stock NCCL's time over the time in a job here."""
        return self.key.stock_us / self.time_us

    @property
    def apart_us(self) -> float:
        """Time if every schedule of the table ran."""
        return self.entry.time_us if self.entry is not None else self.time_us

    @property
    def apart_speedup(self) -> float:
        """Speedup over stock NCCL if every schedule of the table ran."""
        return self.key.stock_us / self.apart_us


@dataclass(frozen=True, slots=True)
class JobGains:
    """The gains of a job from a table on this installation, in the order of the report's keys."""

    evidence: Evidence
    keys: tuple[KeyGain, ...]

    @property
    def speedup(self) -> float:
        """Speedup of a job here: geometric mean over all keys."""
        return _geomean([gain.speedup for gain in self.keys])

    @property
    def speedup_without_executor(self) -> float:
        """Speedup with the plugin and the process profile alone."""
        return _geomean([gain.key.stock_us / gain.without_executor_us for gain in self.keys])

    @property
    def speedup_with_all_schedules(self) -> float:
        """Speedup if every schedule of the table ran."""
        return _geomean([gain.apart_speedup for gain in self.keys])

    @property
    def runners(self) -> Mapping[Runner, int]:
        """Number of keys by runner, in the order of `Runner`."""
        counts = Counter(gain.runner for gain in self.keys)
        return {runner: counts[runner] for runner in Runner if counts[runner]}

    @property
    def obstacles(self) -> Mapping[Obstacle, int]:
        """Number of keys by the obstacle to their schedule, in the order of `Obstacle`."""
        counts = Counter(gain.obstacle for gain in self.keys)
        return {obstacle: counts[obstacle] for obstacle in Obstacle if counts[obstacle]}

    @property
    def caveats(self) -> tuple[str, ...]:
        """Reasons not to rely on the table, and why some of its schedules do not run."""
        sentences = (self.evidence.caveat, *(obstacle.sentence for obstacle in self.obstacles))
        return tuple(filter(None, sentences))


def gains_of(result: FinishedRun) -> JobGains:
    """The gains of a job from a run's table on this installation."""
    return job_gains(result.table, result.report, has_executor=has_executor())


def job_gains(table: Table, report: Report, *, has_executor: bool) -> JobGains:
    """The gains of a job from a table.

    Args:
        table: The table of a run.
        report: The report of the same run.
        has_executor: Whether this installation has the executor's library.
    """
    evidence = evidence_of(table, report.source)
    entries = {
        (entry.key.operation.value, entry.tuned_bytes, shape): entry
        for entry in table.entries
        for shape in (entry.key.shape, None)  # Reports of earlier releases name no shape.
    }
    return JobGains(
        evidence,
        tuple(
            _key_gain(
                key,
                entries.get((key.operation, key.size_bytes, key.shape)),
                table,
                evidence,
                has_executor=has_executor,
            )
            for key in report.keys
        ),
    )


def obstacle_to(
    entry: Entry, table: Table, evidence: Evidence, *, has_executor: bool
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


def _key_gain(
    key: KeyReport, entry: Entry | None, table: Table, evidence: Evidence, *, has_executor: bool
) -> KeyGain:
    alone, alone_us = Runner.NCCL, key.stock_us
    if entry is not None and entry.builtin_time_us is not None:
        alone, alone_us = Runner.PLUGIN, entry.builtin_time_us
    elif table.profile:
        alone, alone_us = Runner.PROFILE, _under_profile_us(key)
    runner, time_us, obstacle = alone, alone_us, None
    if entry is not None and entry.schedule is not None:
        obstacle = obstacle_to(entry, table, evidence, has_executor=has_executor)
        if obstacle is None:
            runner, time_us = Runner.EXECUTOR, entry.time_us
    return KeyGain(key, entry, runner, time_us, alone, alone_us, obstacle)


def _under_profile_us(key: KeyReport) -> float:
    """The time of NCCL's own choice under the profile, from starts in turn with stock NCCL.

    Without such starts it and stock NCCL's time are of different starts.
    """
    in_turn = key.profile_ratio
    return key.profile_default_us if in_turn is None else key.stock_us / in_turn.ratio


def _geomean(values: Sequence[float]) -> float:
    return exp(sum(log(value) for value in values) / len(values)) if values else 1.0
