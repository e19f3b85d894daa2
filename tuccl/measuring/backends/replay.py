"""The `replay` backend: measurements of an earlier run, returned again.

Nothing runs, so a search costs its own arithmetic alone, and many searches can be compared on the
very same machine. The machine time that they would have taken is counted all the same: a launch for
each sample, a restart of the workers for each change of the process profile.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, reduce
from itertools import pairwise

from lookup_tables.provenance import Provenance
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.records.record import NOT_RECORDED, Record
from tuccl.search.trials.backend import JobCall, JobTable, JobTimes, Measured, RunningProfiles
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.space import Knob, Space, space_of
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Answer, Recorded

RESTART_S = 3.0
"""Seconds for four processes with NCCL to start again on one host."""
_NOTHING = Answer(0, 0, 0.0, 0.0)


class ReplayBackend:
    """Returns the samples of a record.

    Sample number i of a configuration is the i-th that was recorded. A request that was recorded is
    answered as it was then, with its cost, so that a search that takes the recorded steps takes
    them to the end. Requests beyond the recorded samples get all of them again in each round, in an
    order that is drawn from the seed anew for each round. So further samples add no information:
    the record decides how well two configurations can be told apart.

    `measure` raises ConfigurationFailedError for a configuration that is not in the record, and for
    one that failed when it was recorded, which costs the recorded time.
    """

    name = "replay"

    def __init__(
        self,
        record: Record,
        seed: int = 0,
        restart_s: float = RESTART_S,
        *,
        reserves_jobs: bool = False,
    ) -> None:
        """Replay a record.

        Args:
            record: The recorded measurements.
            seed: Seed of the order in which samples are returned again.
            restart_s: Seconds that a change of the process profile costs; 0: nothing. After a
                request that was recorded they are the recorded ones.
            reserves_jobs: Whether the recorded run reserved seconds for jobs, even if it paid for
                none.
        """
        self._record = record
        self._cost_tables = dict(record.of_run.cost_tables)
        self._jobs = {(job.table, job.number): job for job in record.of_run.jobs}
        self._seed = seed
        self._running = RunningProfiles()
        self.restart_s = restart_s
        self.runs_jobs = reserves_jobs or bool(self._jobs)
        """See `RunsJobs`."""

    @property
    def provenance(self) -> Provenance:
        """Provenance of the recorded figures."""
        return replace(self._record.provenance, replayed=True)

    @property
    def timing(self) -> Timing:
        """Conditions under which the recorded calls were timed."""
        return self._record.timing

    def resume(self, running: ProcessProfile) -> None:
        """Continue a search that was stopped with its workers under this profile."""
        self._running.use(running)

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        """Return recorded samples with their cost; see `Backend.measure`.

        The cost of a request that was not recorded is that of the launches, with as many calls each
        as `Record.timing` says, without the leader's overhead around them.
        """
        restart_s = self.restart_s if self._running.run(config) else 0.0
        row = self._record.row(task, config)
        if row is None:
            raise ConfigurationFailedError(NOT_RECORDED, seconds=restart_s)
        recorded = _recorded_request(row, first, first + repeats)
        if recorded is not None:
            self.restart_s = recorded.restart_s
            return Measured(row.samples_us[first : recorded.given], recorded.seconds)
        if row.failed and first + repeats > len(row.samples_us):
            if row.unasked_s is None and first == len(row.samples_us):
                raise ConfigurationFailedError(row.failed, seconds=row.failed_s)
            paid = self._seconds(row, row.samples_us[:first])
            raise ConfigurationFailedError(
                row.failed, seconds=restart_s + max(0.0, row.seconds - paid)
            )
        samples = tuple(self._sample(row, number) for number in range(first, first + repeats))
        return Measured(samples, restart_s + self._seconds(row, samples))

    def restart(self) -> None:
        """See `Backend`."""
        self._running.end()

    def check(self, task: Task, config: Config) -> None:
        """Raise for a configuration whose check failed when it was recorded; there is no data."""
        row = self._record.row(task, config)
        if row is not None and row.failed and row.failed_check:
            raise ConfigurationFailedError(row.failed, seconds=row.failed_s)

    def cost_table(self, task: Task) -> CostTable | None:
        """See `Estimating`: the recorded table."""
        return self._cost_tables.get(task)

    @property
    def has_windows(self) -> bool:
        """See `RunsJobs`: whether such calls were recorded."""
        jobs = self._jobs.values()
        return any(call.in_windows for job in jobs for call, _ in job.times_us)

    def time_job(
        self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
    ) -> JobTimes:
        """See `RunsJobs`: a job was recorded with the very same table, or is not there.

        Calls beside computation and on windows that were not recorded are left out.
        """
        job = self._jobs.get(("" if table is None else table.name, number))
        times_us = {} if job is None else dict(job.times_us)
        if job is not None and job.failed:
            raise ConfigurationFailedError(job.failed, seconds=job.seconds)
        recorded = [call for call in launches if call in times_us]
        # A record that was made with --alone has none beside computation.
        if job is None or any(call.is_plain and call not in times_us for call in launches):
            raise ConfigurationFailedError(NOT_RECORDED)
        self._running.end()
        return JobTimes(tuple((call, times_us[call]) for call in recorded), job.seconds)

    def space_of(self, task: Task) -> Space:
        """Return NCCL's configurations that were recorded for a task, its own choice included.

        A race turns the variables that it turned then, as far as it came.

        A race visits some keys alone. A profile without NCCL's own choice for all of them cannot be
        a table's, as no key could be decided under it, so its configurations are left out.
        """
        configs = [c for c in self._record.configs(task) if not c.is_schedule]
        found = space_of("record", (c for c in configs if c.profile in self._whole_profiles))
        return replace(found, knobs=self._knobs)

    @cached_property
    def _knobs(self) -> tuple[Knob, ...]:
        """The variables that the recorded race turned, with the values that it tried."""
        search = self._record.of_run.search
        spaces = () if search is None else search.spaces
        tried = [set(profile.settings) for profile in self._whole_profiles]
        knobs = []
        for knob in dict.fromkeys(knob for space in spaces for knob in space.knobs):
            values, between = (
                tuple(value for value in own if any(map(set(value).issubset, tried)))
                for own in (knob.values, knob.between)
            )
            if any(values):
                knobs.append(replace(knob, values=values, between=between))
        return tuple(knobs)

    @cached_property
    def _whole_profiles(self) -> frozenset[ProcessProfile]:
        """Profiles under which NCCL's own choice was recorded for every key."""
        of_keys = (
            frozenset(c.profile for c in self._record.configs(task) if c.is_default)
            for task in self._record.tasks
        )
        return reduce(frozenset.intersection, of_keys, next(of_keys, frozenset()))

    def schedules_of(self, task: Task) -> Space:
        """Return the configurations of schedules that were recorded for a task.

        Those of schedules whose steps the record lacks are left out.
        """
        known = {schedule.content_hash for schedule in self._record.of_run.schedules}
        configs = self._record.configs(task)
        return space_of("executor", (each for each in configs if each.schedule in known))

    def _seconds(self, row: Recorded, samples: tuple[float, ...]) -> float:
        return sum(samples) * 1e-6 * self._record.timing.calls(row.task.size_bytes)

    def _sample(self, row: Recorded, number: int) -> float:
        samples = row.samples_us
        turn, place = divmod(number, len(samples))
        if turn == 0:
            return samples[place]
        subject = f"{self._seed}:{turn}:{row.task.operation}:{row.task.size_bytes}:{row.config}"
        digest = hashlib.blake2b(subject.encode(), digest_size=8).digest()
        order = random.Random(digest).sample(range(len(samples)), len(samples))  # noqa: S311
        return samples[order[place]]


def _recorded_request(row: Recorded, first: int, asked: int) -> Answer | None:
    """Return the recorded request for samples number `first` to `asked`; None if there was none."""
    for before, request in pairwise((_NOTHING, *row.answers)):
        if (before.given, request.asked) == (first, asked):
            return request
    return None
