"""The table as a whole: jobs that have loaded all of it, in turn with jobs of stock NCCL.

Decisions compare one call with NCCL's own choice, both in workers that can run any call. A job has
loaded plugin, bundle, process profile and executor together, with the memory, kernels and
connections of all entries; a job of stock NCCL has none of them. The difference reaches keys
without an entry, too. So a round starts both kinds of job in new processes, in turn, and times all
keys, as `bench` does afterwards (`tuccl.measuring.engines.job`, `tuccl.reports.ratios`).

Calls that trainings make beside computation are timed so, too, if a call or a profile of the table
runs them (`tuccl.tuning.beside_computation`). Calls of schedules are also timed on registered
buffers, for which NCCL has other kernels, about which it asks no tuner: an entry serves windows,
too, if the schedule is not slower there.

An entry with which a job is slower than stock NCCL beyond the noise is left out, beside computation
also one that looks slower, since a job that overlaps must not lose. Where keys without
an entry lose, that is the cost of what is loaded: the executor goes, or the whole table, if the
keys gain more without it, by the rule that selects a process profile (losses count six times).
Else such keys are told. If jobs with the table do not run, the executor goes, and the whole table
if they still do not. What is left is timed again, as far as the budget goes, and its times are what
the report counts.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.engines.job import turn_order
from tuccl.measuring.records.record import NOT_RECORDED
from tuccl.reports.ratios import key_gains
from tuccl.reports.report import Dropped
from tuccl.search.statistics.estimators import geometric_mean
from tuccl.search.trials.backend import JobCall, JobTable
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.events import AtMost, KeyDecided
from tuccl.search.trials.shapes import memberships
from tuccl.tuning.beside_computation import (
    COMPUTATION,
    ROUNDS,
    launches_in_job,
    may_overlap,
    seconds_in_job,
)
from tuccl.tuning.decision import Decision, SlowerInJob
from tuccl.tuning.profile_visits import weighted_gain
from tuccl.tuning.results import KeyResult, SeenKey, TunedKeys, WholeTable
from tuccl.tuning.run_keys import key_weights
from tuccl.tuning.searches import TuningMeans

_MOST_ROUNDS = 5
"""Rounds of keys that look slower, as far as the budget goes beyond what was reserved."""
_SUSPECT = 0.97
"""Ratio to stock NCCL below which a key looks slower."""
_SHARE = 0.15
"""Share of the budget that is reserved, unless the starts alone need about as much; the dearest
keys are left out if it does not suffice."""
_MOST_STARTS, _LEAST_CALLS = 0.25, 0.03
"""Share of the budget from which the starts of jobs are not worth it, and share that their calls
may have beyond the starts in any case."""
_WIDEST = 2.0
"""Largest ratio of a bound to a key's gain with which the gain counts: beyond it the decision, of
more samples, says more."""
_MOST_TIMES = 3
"""Most times that a table is held, each of which leaves something out but the last."""
_STAGE = "whole table"
_EXECUTOR_COSTS = "loading the executor costs other calls more than its schedules gain"
_TABLE_COSTS = "loading the table costs calls more than its entries gain"
_EXECUTOR_FAILS = "a job with the executor does not run"
_TABLE_FAILS = "a job with the table does not run"


class _TableFailsError(Exception):
    """Jobs with the table do not run."""


def reserved_seconds(restart_s: float, sample_s: Iterable[float], budget_s: float) -> float:
    """Return what is reserved of a budget for jobs: all keys, or as many as a share pays for.

    Args:
        restart_s: Seconds of a start of the workers.
        sample_s: Seconds of a sample of each key.
        budget_s: The budget.
    """
    jobs = 2 * ROUNDS
    starts_s = jobs * restart_s
    if starts_s >= _MOST_STARTS * budget_s:
        return 0.0
    calls_s = max(_SHARE * budget_s - starts_s, _LEAST_CALLS * budget_s)
    return starts_s + min(calls_s, jobs * sum(map(seconds_in_job, sample_s)))


def hold_whole(
    tuning: TunedKeys, means: TuningMeans, shape: Shape, table_of: Callable[[TunedKeys], JobTable]
) -> TunedKeys:
    """Time jobs with the whole table, and leave out what they lose by.

    Nothing is timed where the backend runs no jobs, as a model, which has no cost of what is
    loaded.

    Args:
        tuning: The outcome of a tuning.
        means: Settings and log of the run.
        shape: Shape of the communicator of all GPUs.
        table_of: Makes the table of an outcome.

    Raises:
        MeasurementError: The backend cannot go on.
        WorkspaceError: The log cannot be written.
    """
    if not means.log.runs_jobs:
        return tuning
    return _Holding(means, shape, table_of, tuning).held()


@dataclass
class _Holding:
    """The rounds of one run."""

    means: TuningMeans
    shape: Shape
    table_of: Callable[[TunedKeys], JobTable]
    tuning: TunedKeys
    seconds: float = 0.0
    """Seconds of all jobs."""
    jobs: Counter[str] = field(default_factory=Counter)
    """Number of jobs by table; stock NCCL's under the empty name."""

    def held(self) -> TunedKeys:
        """Hold the table, and what is left of it as long as something is left out."""
        whole = WholeTable()
        for _ in range(_MOST_TIMES):
            table, before = self.table_of(self.tuning), self.tuning
            changes = bool(table.calls) or table.profile != STOCK.profile
            launches = self._fitting(table) if changes else {}
            if not launches:
                break
            try:
                seen = self._seen(table, launches)
            except _TableFailsError as error:
                whole = WholeTable(dropped=self._drop_failing(table), dropped_why=str(error))
                continue
            except ConfigurationFailedError as error:
                whole = WholeTable(
                    dropped=whole.dropped, dropped_why=whole.dropped_why, failed=str(error)
                )
                break
            if (dropped := self._leave_out(table, seen)) is None:
                whole = replace(whole, rounds=ROUNDS, keys=self._unchanged(before, seen))
            else:
                whole = WholeTable(dropped=dropped)  # What was seen is not of what is left.
            if self.tuning is before:
                break
        if jobs := self.jobs.total():
            self.means.progress(_STAGE, jobs, jobs)
        whole = replace(whole, seconds=self.seconds)
        return replace(self.tuning, whole=whole, spent_s=self.tuning.spent_s + self.seconds)

    @property
    def _left_s(self) -> float:
        budget_s = self.means.settings.budget_s
        return math.inf if budget_s is None else budget_s - self.tuning.spent_s - self.seconds

    def _fitting(self, table: JobTable) -> dict[JobCall, int]:
        """Return the calls that the budget pays for: keys that jobs have here, the cheapest first.

        With the launches of each, in the order of the keys. Those on windows and those beside a
        computation come last.
        """
        each_s = self._left_s / (2 * ROUNDS) - self.tuning.start_s
        keys = [
            key for key in self.tuning.keys if memberships(key.task.shape, self.shape) is not None
        ]
        costs = {JobCall(key.task): key.sample_s for key in keys}
        if self.means.log.has_windows:
            costs |= {
                JobCall(key.task, in_windows=True): key.sample_s
                for key in keys
                if (own := table.calls.get(key.task)) is not None and own.is_schedule
            }
        costs |= {
            JobCall(key.task, us): key.sample_s * max(1.0, us / key.stock_us)
            for key in keys
            if (us := self._computation_us(key, table))
        }
        order = sorted(
            costs, key=lambda call: (call.computation_us > 0.0, call.in_windows, costs[call])
        )
        fitting = set()
        for call in order:
            each_s -= seconds_in_job(costs[call])
            if each_s < 0.0:
                break
            fitting.add(call)
        return {call: launches_in_job(each) for call, each in costs.items() if call in fitting}

    def _computation_us(self, key: KeyResult, table: JobTable) -> float:
        """Return how long the GPU computes beside a key's call; 0: the call is timed as it was."""
        is_changed = key.task in table.calls or table.profile != STOCK.profile
        if not is_changed or not may_overlap(key.task, self.means.settings):
            return 0.0
        return float(round(COMPUTATION * key.stock_us))

    def _seen(self, table: JobTable, launches: Mapping[JobCall, int]) -> dict[Task, SeenKey]:
        """Time calls in rounds.

        Raises:
            _TableFailsError: A job with the table does not run, nor the next one if it is paid for.
            ConfigurationFailedError: A job of stock NCCL does not run, or none is recorded.
        """
        stock_us: dict[JobCall, list[float]] = defaultdict(list)
        table_us: dict[JobCall, list[float]] = defaultdict(list)
        seen: dict[Task, SeenKey] = {}
        for number in range(_MOST_ROUNDS):
            timed = launches if number < ROUNDS else self._suspects(seen, launches)
            if not timed:
                break
            for contender, times_us in turn_order(((None, stock_us), (table, table_us)), number):
                for call, time_us in self._time(contender, timed):
                    times_us[call].append(time_us)
            if number + 1 >= ROUNDS:
                # Beside a computation of the same length, calls vary less than alone.
                gains = key_gains(stock_us, table_us, lambda call: call.computation_us > 0.0)
                beside = {call.task: gain for call, gain in gains.items() if call.computation_us}
                in_windows = {call.task: gain for call, gain in gains.items() if call.in_windows}
                seen = {
                    call.task: SeenKey(
                        _mean(stock_us[call]),
                        _mean(table_us[call]),
                        gain,
                        len(stock_us[call]),
                        beside.get(call.task),
                        in_windows.get(call.task),
                    )
                    for call, gain in gains.items()
                    if call.is_plain
                }
        return seen

    def _suspects(
        self, seen: Mapping[Task, SeenKey], launches: Mapping[JobCall, int]
    ) -> dict[JobCall, int]:
        """Return the calls that look slower and are not proved so; none if a round is too dear."""
        looking = {
            task
            for task, key in seen.items()
            if not key.is_slower
            and min(key.gain.ratio, key.beside.ratio if key.beside else math.inf) < _SUSPECT
        }
        suspects = {call: count for call, count in launches.items() if call.task in looking}
        sample_s = (key.sample_s for key in self.tuning.keys if key.task in looking)
        round_s = 2.0 * (self.tuning.start_s + sum(map(seconds_in_job, sample_s)))
        return suspects if round_s <= self._left_s else {}

    def _time(
        self, table: JobTable | None, launches: Mapping[JobCall, int], *, is_last: bool = False
    ) -> tuple[tuple[JobCall, float], ...]:
        """Time a job.

        One with the table may fail by chance, as where a port is taken, so a second one decides.
        """
        name = "" if table is None else table.name
        number = self.jobs[name]
        most = AtMost(2 * _MOST_ROUNDS * _MOST_TIMES)
        self.means.progress(_STAGE, self.jobs.total(), most)
        self.jobs[name] += 1
        try:
            timed = self.means.log.time_job(launches, table, number)
        except ConfigurationFailedError as error:
            self.seconds += error.seconds
            if table is None or str(error) == NOT_RECORDED:
                raise
            if is_last or error.seconds > self._left_s:
                raise _TableFailsError(str(error)) from error
            return self._time(table, launches, is_last=True)
        self.seconds += timed.seconds
        return timed.times_us

    def _drop_failing(self, table: JobTable) -> Dropped:
        """Drop the executor, else the whole table; return what was dropped."""
        if table.loads_executor:
            self._drop_executor(table, _EXECUTOR_FAILS)
            return Dropped.EXECUTOR
        self._drop_table(table, _TABLE_FAILS)
        return Dropped.TABLE

    def _leave_out(self, table: JobTable, seen: Mapping[Task, SeenKey]) -> Dropped | None:
        """Leave out what a job loses by; return the part that is dropped, if one is."""
        keeps_sums = self.means.settings.keeps_sums
        losing = {
            task
            for task, key in seen.items()
            if not keeps_sums(task) and key.losses(_SUSPECT if task in table.calls else 0.0)
        }
        logs = {
            task: math.log(min((key.gain.ratio, *(gain.ratio for gain in key.losses().values()))))
            for task, key in seen.items()
        }
        without_entry = losing - table.calls.keys()
        # What keeps sums from moving stays, whatever it costs.
        if without_entry and not self.means.settings.options.invariant:
            dropped = self._dearest(table, logs, losing)
            if dropped is not None:
                return dropped
        for task in losing - without_entry:
            for how, gain in seen[task].losses(_SUSPECT).items():
                why = (
                    f"with the whole table loaded a job was slower{how} than with stock NCCL "
                    f"({gain.ratio:.3f}x, {gain.low:.3f} to {gain.high:.3f})"
                )
            self._change({task: why})
        return None

    def _dearest(
        self, table: JobTable, logs: Mapping[Task, float], losing: Collection[Task]
    ) -> Dropped | None:
        """Drop the executor or all, if the keys gain more without it."""
        tasks = list(logs)
        weights = self._weights(tasks)
        entries = table.calls.keys()
        # A key whose entry goes is left to NCCL.
        kept = {task: 0.0 if task in losing and task in entries else logs[task] for task in tasks}
        gains: dict[Dropped | None, float] = {
            None: weighted_gain(kept, weights, [task for task in losing if task not in entries])
        }
        if table.loads_executor:
            gains[Dropped.EXECUTOR] = weighted_gain(self._without_executor(tasks), weights)
        gains[Dropped.TABLE] = 0.0
        best = max(gains, key=lambda each: gains[each])
        if best is Dropped.EXECUTOR:
            self._drop_executor(table, _EXECUTOR_COSTS)
        elif best is Dropped.TABLE:
            self._drop_table(table, _TABLE_COSTS)
        return best

    def _drop_executor(self, table: JobTable, why: str) -> None:
        run = [task for task, config in table.calls.items() if config.is_schedule]
        self._change(dict.fromkeys(run, why), schedules_alone=True)

    def _drop_table(self, table: JobTable, why: str) -> None:
        self._change(dict.fromkeys(table.calls, why))
        race = replace(self.tuning.race, verdict=None, by_schedule=frozenset())
        self.tuning = replace(self.tuning, profile=STOCK.profile, race=race, placed=())

    def _without_executor(self, tasks: Iterable[Task]) -> dict[Task, float]:
        """Logarithms of the gains of a job without the executor, by the decisions."""
        logs, under_profile = {}, self.tuning.profile != STOCK.profile
        for key in self.tuning.keys:
            builtin, own_us = key.decision.builtin, key.stock_us
            if builtin is not None or under_profile:
                own_us = builtin.time_us if builtin else key.decision.profile_default_us
            logs[key.task] = math.log(key.stock_us / own_us)
        return {task: logs[task] for task in tasks}

    def _weights(self, tasks: Sequence[Task]) -> Mapping[Task, float]:
        stock_us = {key.task: key.stock_us for key in self.tuning.keys}
        return key_weights(self.means.settings, tasks, stock_us).of_profile

    def _change(self, whys: Mapping[Task, str], *, schedules_alone: bool = False) -> None:
        """Leave out the calls of these keys, of which a job runs the winner."""

        def without(decision: Decision, why: str) -> Decision:
            own = decision.schedule if schedules_alone else None
            calls = [own] if own else decision.proved
            return decision.without({c.config: SlowerInJob(c.config, why) for c in calls})

        keys = tuple(
            replace(key, decision=without(key.decision, whys[key.task]))
            if key.task in whys
            else key
            for key in self.tuning.keys
        )
        self.tuning = replace(self.tuning, keys=keys)
        for key in keys:
            if key.task in whys:
                gain = 1.0 if self.tuning.profile == STOCK.profile else None
                own_us = key.decision.profile_default_us
                self.means.watch(KeyDecided(key.task, key.decision.winner, own_us, gain))

    def _unchanged(self, before: TunedKeys, seen: Mapping[Task, SeenKey]) -> dict[Task, SeenKey]:
        """Return what was seen of the keys that run what they ran, where it says something."""
        now = {key.task: key.decision.winner for key in self.tuning.keys}
        ran: dict[Task, Config | None] = {key.task: key.decision.winner for key in before.keys}
        return {
            task: key
            for task, key in seen.items()
            if now[task] == ran[task] and key.gain.high <= _WIDEST * key.gain.ratio
        }


def _mean(times_us: Sequence[float]) -> float:
    return geometric_mean([math.log(time_us) for time_us in times_us])
