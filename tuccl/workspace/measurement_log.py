"""The append-only record of every measurement: the truth that a search resumes from.

One JSON object a line (`tuccl.workspace.measurement_lines`), with a sum
(`tuccl.workspace.measurement_file`). A line is written whole or, when the process dies in the
middle, cut: a last line without its newline is dropped at the next start. Nothing is ever
rewritten, so a kill loses at most the measurement that was under way. Where a line is damaged, the
file is put aside, and what stands before that line is used: the run goes on as if it had been
killed there.

A search that continues takes the steps of one that was never stopped: it is given the samples, the
costs and the failures that it was given the first time, each at the same request.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from probes.inputs.regular_file import open_own_file
from tuccl.errors import ConfigurationFailedError, MeasurementError, WorkspaceError
from tuccl.search.trials.backend import (
    Backend,
    Estimating,
    JobCall,
    JobTable,
    JobTimes,
    Measured,
    RunsJobs,
)
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.timing import timing_of
from tuccl.workspace.atomic_file import cannot_write
from tuccl.workspace.measurement_file import read_sound, repair
from tuccl.workspace.measurement_lines import (
    Contents,
    Recorded,
    RecordedJob,
    Source,
    failure_line,
    header_line,
    job_line,
    samples_line,
    source_line,
    table_line,
)


@runtime_checkable
class ModelledRestarts(Protocol):
    """A backend that only counts what restarting its workers would cost.

    Real workers of a run that was stopped are gone, and starting them again takes its time.
    Modelled ones go on with those that the log ended with, so that a stop changes no cost.
    """

    def resume(self, running: ProcessProfile) -> None:
        """Go on as if workers had turned to this profile; told about all, the latest last."""


def read_log(path: Path, identity: str, tell: Callable[[str], None] = lambda _: None) -> Contents:
    """Read a log up to its first damaged line; empty if there is no log.

    Args:
        path: The file.
        identity: Identity of the run that it must belong to.
        tell: Called with a line on what is damaged.

    Raises:
        WorkspaceError: It is of another version, belongs to something else, or its first line
            is damaged.
    """
    sound = read_sound(path, identity)
    if sound.damage is not None:
        tell(f"note: {sound.damage.sentence(path, 'are not used')}")
    return sound.contents


class MeasurementLog:
    """Samples by task and configuration, in memory and in a file."""

    def __init__(
        self,
        path: Path,
        backend: Backend,
        identity: str,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open the log, or start it; what is damaged of it is put aside.

        Args:
            path: The file.
            backend: What measures whatever the log does not hold yet.
            identity: What the measurements belong to; a log of something else is refused.
            tell: Called with a line on what is damaged.

        Raises:
            WorkspaceError: The file belongs to something else or cannot be written, or NCCL allows
                other algorithms than when it was begun.
        """
        self._path = path
        self._backend = backend
        sound = read_sound(path, identity)
        self._contents, self._lines = sound.contents, sound.lines
        if sound.damage is not None:
            aside = repair(path, sound)
            what = sound.damage.sentence(path, "are dropped and measured again where needed")
            tell(f"note: {what}; the file as it was is {aside}")
        self._must_restart = False
        """Whether the next measurement of a call that needs a process profile begins a start."""
        self._source_stands = False
        """Whether this process has compared itself with what measured before."""
        if isinstance(backend, ModelledRestarts):
            for profile in self._contents.profiles:
                backend.resume(profile)
        self._require_same_tables()
        try:
            own = open_own_file(path, os.O_WRONLY | os.O_APPEND)
            self._file = os.fdopen(own, "ab", buffering=0)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            self._file.truncate(len(sound.whole))
            if not sound.whole:
                self._write(header_line(identity))
        except OSError as error:
            self._file.close()
            raise cannot_write(path, error) from error

    def _require_same_tables(self) -> None:
        """Ask for a table of each operation and shape again: what NCCL allows decides the space."""
        if not isinstance(self._backend, Estimating):
            return
        known = self._contents.cost_tables
        asked = {(task.operation, task.shape): task for task in known if task.placement == ANYWHERE}
        for task in asked.values():
            before, now = known[task], self._backend.cost_table(task)
            if before is None or now is None or set(before.allowed) == set(now.allowed):
                continue
            raise WorkspaceError(
                f"{self._path}: NCCL allowed {before.names} for {task.operation} when this run "
                f"began, and allows {now.names} now: use another --workspace"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                os.fsync(self._file.fileno())
        except OSError as failed:
            raise cannot_write(self._path, failed) from failed
        finally:
            self._file.close()

    def measure(self, task: Task, config: Config, repeats: int) -> Measured:
        """The first `repeats` samples: those recorded, and new ones for the rest.

        Fewer, one at least, where the backend finds the configuration too slow to be worth more.

        The seconds are those of the measurements that brought these samples, recorded ones too, so
        a search that continues spends its budget as one that was never stopped; likewise the price
        of a restart, which real workers only know from the starts of their own process.

        Raises:
            ConfigurationFailedError: The configuration failed before it had so many samples,
                now or earlier.
            MeasurementError: From the backend.
            WorkspaceError: The log cannot be written, or holds measurements of other versions.
        """
        known = self._contents.known(task, config)
        begins = self._must_restart and config.needs_profile
        self._must_restart = self._must_restart and not begins
        if measured := known.first(repeats):
            return measured
        if begins:
            self._backend.restart()
        return self._measure_more(task, known, repeats)

    def restart(self) -> None:
        """Let the next measurement of a call that needs a profile come from a new start.

        It must ask for more samples than any before. A search that continues has that start if its
        samples are recorded.
        """
        self._must_restart = True

    def check(self, task: Task, config: Config) -> None:
        """Let the backend hold a configuration's data against what it must be.

        Wrong data is a failure like any other: recorded, and raised again without looking. Wrong
        data of stock NCCL is not recorded, because its times remain the reference of the run.

        Raises:
            ConfigurationFailedError: The data is wrong, or the configuration failed earlier.
            MeasurementError: From the backend.
            WorkspaceError: The log cannot be written.
        """
        known = self._contents.known(task, config)
        if known.failed:
            raise ConfigurationFailedError(known.failed, seconds=known.failed_s)
        try:
            self._backend.check(task, config)
        except ConfigurationFailedError as error:
            if config != STOCK:
                self._fail(known, error, check=True)
            raise

    def cost_table(self, task: Task) -> CostTable | None:
        """NCCL's cost table, as recorded or from the backend; see `Estimating`.

        Raises:
            ConfigurationFailedError: The call cannot run.
            MeasurementError: From the backend.
            WorkspaceError: The log cannot be written.
        """
        if not isinstance(self._backend, Estimating):
            return None
        known = self._contents.cost_tables
        if task not in known:
            table = self._backend.cost_table(task)
            self._append(table_line(task, table))
            known[task] = table
        return known[task]

    @property
    def runs_jobs(self) -> bool:
        """Whether the backend times keys in jobs; see `RunsJobs`."""
        return isinstance(self._backend, RunsJobs) and self._backend.runs_jobs

    @property
    def has_windows(self) -> bool:
        """Whether these may be on registered buffers; see `RunsJobs`."""
        return isinstance(self._backend, RunsJobs) and self._backend.has_windows

    def time_job(
        self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
    ) -> JobTimes:
        """Return the times of a job, as recorded or from the backend; see `RunsJobs`.

        Raises:
            ConfigurationFailedError: The job cannot run, now or earlier.
            MeasurementError: From the backend.
            WorkspaceError: The log cannot be written.
        """
        name = "" if table is None else table.name
        job = self._contents.jobs.get((name, number))
        if job is None:
            job = self._run_job(launches, table, number)
            self._append(job_line(job))
            self._contents.put_job(job)
        if job.failed:
            raise ConfigurationFailedError(job.failed, seconds=job.seconds)
        return JobTimes(job.times_us, job.seconds)

    def _run_job(
        self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
    ) -> RecordedJob:
        name, backend = "" if table is None else table.name, self._backend
        if not isinstance(backend, RunsJobs):
            raise MeasurementError(f"the {backend.name} backend runs no jobs")
        try:
            timed = backend.time_job(launches, table, number)
        except ConfigurationFailedError as error:
            return RecordedJob(name, number, (), error.seconds, str(error))
        job = RecordedJob(name, number, timed.times_us, timed.seconds)
        try:
            job.check()
        except ValueError as error:
            raise MeasurementError(
                f"the {backend.name} backend gave {error}; nothing was recorded of it"
            ) from error
        return job

    @property
    def contents(self) -> Contents:
        """Everything that was measured."""
        return self._contents

    def _measure_more(self, task: Task, known: Recorded, repeats: int) -> Measured:
        if known.failed:
            raise ConfigurationFailedError(known.failed, seconds=known.failed_s)
        first = len(known.samples_us)
        try:
            taken = self._backend.measure(task, known.config, first, repeats - first)
        except ConfigurationFailedError as error:
            self._fail(known, error)
            raise
        fresh = replace(taken, restart_s=self._backend.restart_s)
        try:
            joined = known.joined(fresh, repeats)
        except ValueError as error:  # A wrong figure must not become the truth.
            raise MeasurementError(
                f"the {self._backend.name} backend gave {error}; nothing was recorded of it"
            ) from error
        self._append(samples_line(known, fresh, repeats, self._contents.restart_s))
        self._contents.put(joined)
        return Measured(joined.samples_us, joined.seconds, fresh.restart_s)

    def _fail(
        self, known: Recorded, error: ConfigurationFailedError, *, check: bool = False
    ) -> None:
        reason, seconds = str(error), error.seconds
        self._append(failure_line(known, reason, seconds, check=check))
        self._contents.put(replace(known, failed=reason, failed_s=seconds, failed_check=check))

    def _append(self, line: bytes) -> None:
        try:
            if not self._source_stands:
                self._note_source()
                self._source_stands = True
            self._write(line)
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def _note_source(self) -> None:
        """Say what measures, which a backend knows for sure once it has measured."""
        backend = self._backend
        source = Source(backend.provenance, timing_of(backend))
        if self._contents.source is None:
            self._write(source_line(source))
            self._contents.source = source
        elif self._contents.source != source:
            before = self._contents.source.provenance
            raise WorkspaceError(
                f"{self._path} was measured by {before.backend} ({before.describe()}), this is "
                f"{source.provenance.backend} ({source.provenance.describe()}): figures of both "
                "in one table would mislead; use another --workspace"
            )

    def _write(self, line: bytes) -> None:
        # Unbuffered: a line that the disk had no room for must not come back when the file closes.
        sealed = self._lines.sealed(line)
        if self._file.write(sealed) != len(sealed):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement, and the state of its configuration after it."""

    seconds: float
    """Seconds of the machine that this and all earlier measurements took."""
    recorded: Recorded

    @property
    def task(self) -> Task:
        """The task."""
        return self.recorded.task

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.recorded.config


class _InOrder(Contents):
    """A log that keeps the order of its measurements."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Measurement] = []

    def put(self, recorded: Recorded) -> None:
        """Replace a configuration's record, and note when."""
        super().put(recorded)
        self.taken.append(Measurement(self.bill.spent_s, recorded))


def read_history(path: Path, identity: str) -> list[Measurement]:
    """Return the measurements of a log up to its first damaged line.

    Args:
        path: The file.
        identity: Identity of the run that it must belong to.

    Raises:
        WorkspaceError: It cannot be read, is of another version or belongs to something else.
    """
    contents = _InOrder()
    read_sound(path, identity, contents)
    return contents.taken
