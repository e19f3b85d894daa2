"""Rounds of jobs: new processes for every contender in turn, in another order each time.

So changes of the machine meanwhile affect all contenders alike. Each round has an order of the keys
of its own, too, since a call's time depends on what ran before: after calls that the executor runs,
NCCL's connections are colder than after NCCL's own. Before the first round each table
has a job that checks its data and finds out what runs each call; nothing is timed in it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuccl.measuring.engines.job import Job, Site, turn_order
from tuccl.measuring.engines.job_processes import Contender
from tuccl.quantities import format_about
from tuccl.reports.ratios import LEAST_ROUNDS
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Task
from tuccl.search.trials.events import AtMost, Progress, Total
from tuccl.shipping.bench.contenders import ShippedTable

_CHECKING = "checking data"
_TIMING = "timing"
Times = dict[Task, list[float]]
"""Times in us by key, one for each round."""


@dataclass(frozen=True)
class BenchLimits:
    """Limits of a bench."""

    rounds: int
    """Greatest number of rounds."""
    budget_s: float | None = None
    """Time after which no round may end; two run in any case."""


@dataclass(frozen=True)
class BenchTimes:
    """The results of all jobs."""

    times_us: dict[str, Times]
    """Times by contender."""
    runners: dict[str, dict[Task, str]]
    """Runner of each key, `executor` or `nccl`, by table."""
    versions: str
    rounds: int
    seconds: float


def turn_of_keys(tasks: Sequence[Task], number: int) -> Sequence[Task]:
    """Return the order of the keys in a round; that of the first round is as given."""
    if not number:
        return tasks
    shuffled = random.Random(number)  # noqa: S311 - an order, the same in every bench
    return shuffled.sample(tasks, len(tasks))


class Bench:
    """Runs the jobs of one bench."""

    def __init__(
        self,
        site: Site,
        contenders: Sequence[Contender],
        tasks: Sequence[Task],
        progress: Progress,
        tell: Callable[[str], None],
    ) -> None:
        """Prepare a bench; nothing runs yet.

        Args:
            site: Places and conditions of all jobs.
            contenders: Contenders, each with a name of its own.
            tasks: The keys.
            progress: Called with the progress.
            tell: Called with a line on the time that the whole bench takes.
        """
        self._site = site
        self._contenders = tuple(contenders)
        self._tasks = tuple(tasks)
        self._progress = progress
        self._tell = tell
        self._versions = ""
        self._start_share = 0.0
        """Share of a job's time that its start takes."""
        self._share_of: dict[Task, float] = {}
        """Shares of the keys; empty until a job is timed."""

    def run(self, plan: BenchLimits) -> BenchTimes:
        """Check all data, then time all keys round by round.

        Raises:
            MeasurementError: A job cannot run, or data are wrong.
        """
        began = time.monotonic()
        runners = self._check_all()
        times_us: dict[str, Times] = {
            contender.name: {task: [] for task in self._tasks} for contender in self._contenders
        }
        first = time.monotonic()
        done = 0
        while done < plan.rounds and self._fits(plan, done, began, first):
            order, keys = turn_order(self._contenders, done), turn_of_keys(self._tasks, done)
            for turn, contender in enumerate(order):
                found = self._time_all(contender, keys, done * len(order) + turn, plan)
                for task, time_us in found.items():
                    times_us[contender.name][task].append(time_us)
            done += 1
            if done == 1:
                self._tell_estimate(plan, time.monotonic() - first, first - began)
        jobs = done * len(self._contenders)
        self._progress(_TIMING, *self._steps(jobs, 0, plan, over=True))
        return BenchTimes(times_us, runners, self._versions, done, time.monotonic() - began)

    def _fits(self, plan: BenchLimits, done: int, began: float, first: float) -> bool:
        if plan.budget_s is None or done < LEAST_ROUNDS:
            return True
        now = time.monotonic()
        return now - began + (now - first) / done <= plan.budget_s

    def _tell_estimate(self, plan: BenchLimits, round_s: float, before_s: float) -> None:
        total_s = before_s + plan.rounds * round_s
        rounds = plan.rounds
        if plan.budget_s is not None and total_s > plan.budget_s:
            rounds = max(LEAST_ROUNDS, int((plan.budget_s - before_s) / round_s))
            total_s = before_s + rounds * round_s
        self._tell(
            f"a round takes {format_about(round_s)}, the whole of {rounds} about "
            f"{format_about(total_s)}"
        )

    def _check_all(self) -> dict[str, dict[Task, str]]:
        """Check the data of every key with each table; return what ran it."""
        tables = [table for table in self._contenders if isinstance(table, ShippedTable)]
        total = len(tables) * len(self._tasks)
        runners: dict[str, dict[Task, str]] = {}
        for number, table in enumerate(tables):
            self._progress(_CHECKING, number * len(self._tasks), total)
            found = runners.setdefault(table.name, {})
            with Job(self._site, table) as job:
                for at, task in enumerate(self._tasks):
                    found[task] = job.check(task)
                    self._progress(_CHECKING, number * len(self._tasks) + at + 1, total)
        return runners

    def _time_all(
        self, contender: Contender, keys: Sequence[Task], jobs: int, plan: BenchLimits
    ) -> dict[Task, float]:
        """Time the keys in new processes, in this order, after this number of jobs."""
        began = time.monotonic()
        self._progress(_TIMING, *self._steps(jobs, 0, plan), share=self._share(jobs, (), plan))
        found: dict[Task, float] = {}
        over_s = []
        with Job(self._site, contender) as job:
            over_s.append(time.monotonic() - began)
            for at, task in enumerate(keys, 1):
                found[task] = job.time_us(JobCall(task))
                over_s.append(time.monotonic() - began)
                if at < len(keys):
                    share = self._share(jobs, keys[:at], plan)
                    self._progress(_TIMING, *self._steps(jobs, at, plan), share=share)
            self._versions = self._versions or job.versions
        if not self._share_of:
            took_s = time.monotonic() - began
            self._start_share = over_s[0] / took_s
            self._share_of = {
                task: (end_s - begin_s) / took_s
                for task, (begin_s, end_s) in zip(keys, pairwise(over_s), strict=True)
            }
        return found

    def _steps(
        self, jobs: int, keys: int, plan: BenchLimits, *, over: bool = False
    ) -> tuple[int, Total]:
        """Return the number of keys timed so far, and of all keys."""
        done = jobs * len(self._tasks) + keys
        total = plan.rounds * len(self._contenders) * len(self._tasks)
        if plan.budget_s is None:
            return done, total
        return done, done if over else AtMost(total)

    def _share(self, jobs: int, keys: Sequence[Task], plan: BenchLimits) -> float | None:
        """Return the share of all jobs that is done; None until the first job is timed."""
        if not self._share_of or plan.budget_s is not None:
            return None
        part = self._start_share + sum(self._share_of[task] for task in keys) if keys else 0.0
        return (jobs + part) / (plan.rounds * len(self._contenders))
