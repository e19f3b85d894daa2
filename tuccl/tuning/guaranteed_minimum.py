"""The guaranteed minimum of a process profile: stock NCCL and profiles started in turn.

A profile applies to a whole process, so it may cost a small message a tenth of a microsecond that
no entry of the table gives back. The race times a profile in one start of the workers, and from
start to start the same call differs by a few tenths of a per cent. The race therefore cannot tell a
loss of 1 % from none, nor which of several profiles with equal gain loses least. Only one group of
workers can run at a time, so stock NCCL and the best profiles are started in turn, and a round of
starts gives one ratio for each profile and key. Starts dominate the cost, so each start times all
keys that may be the worst, and before anything else: the floor protects jobs that send only small
messages. (NCCL connects ranks at the first use of an algorithm. On four H200 under 64 channels
small messages take up to 1 % longer once all algorithms and sizes have run.) A proof of a further
variable that starts stock NCCL and the profile in turn (`tuccl.tuning.knob_proof`) shares its
starts.

A ratio is stock's time over the profile's: below 1 is a loss. Its bounds are Student's on the mean
logarithm over the rounds, moderated by those of all suspected keys
(`tuccl.search.statistics.moderation`). Both claims hold at the stated confidence over all looks and
profiles together. For the claim that some key is under the floor, the upper bounds are corrected
for the number of keys (Bonferroni). The claim that none is has to be shown for every key, so the
lower bounds need no correction (an intersection-union test: Berger, Technometrics 24, 1982, p.
295).

The order of several profiles rotates from round to round, so that a machine that slows down does
not penalize the last one. A single profile always follows stock NCCL.

A key that a schedule of the executor serves is judged by the schedule, which is what the job gets.
The schedule is timed in the same starts, after all of NCCL's calls. It counts only if its lower
bound is above `CLEAR_GAIN`. That margin exceeds the gain that an entry has to prove, so a schedule
that passes here wins the entry too, and differences between starts do not take it away. Otherwise
the key is judged by NCCL's calls. A job without the executor runs those, so their ratios are kept
for such keys (`Verdict.without_executor`), and `tuccl.tuning.tune` looks after the decision
whether each of them got its schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.reports.ratios import MeasuredGain
from tuccl.search.statistics.estimators import geometric_mean
from tuccl.search.statistics.intervals import student_interval
from tuccl.search.statistics.looks import Looks, bonferroni
from tuccl.search.statistics.moderation import VariancePrior
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.tuning.spending import Fresh

Ratios = dict[tuple[Task, Config], list[float]]
"""Logarithms of stock's time over the call's by key and call, one per round of starts."""
_LOOKS = Looks((3, 5), power=1.0)
"""Numbers of rounds after which the profiles are judged; the last judgement is final. The first
profile that is clear of the floor ends the rounds."""
_ERROR = 0.042
"""Error of a claim over all looks, 2.5 % at the first. It exceeds that of an entry: the floor is a
tolerance already."""
FEWEST_STARTS, MOST_STARTS = _LOOKS.planned[0], _LOOKS.planned[-1]
_SUSPECTS = 8
"""Number of keys that are timed because they may be the worst."""
_SAMPLES = 11
"""Samples of each call in a start."""
CLEAR_GAIN = 1.05
"""Ratio that the lower bound of a schedule must exceed for the schedule to serve a key."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The guaranteed minimum, and how samples to judge it are taken."""

    least: float
    """Least ratio of stock NCCL's time to the profile's; 0.99 allows a key to take 1 % longer."""
    fresh: Fresh


@dataclass(frozen=True, slots=True)
class KeyRatio:
    """Stock NCCL's time of a key over that under a profile."""

    task: Task
    ratio: float
    low: float
    high: float
    """Confidence bounds; all three are 0 where the key cannot run under the profile."""
    resolution: float = 0.0
    """Smallest loss that can be told from none, if the profile is judged alone."""
    schedule: Config | None = None
    """The executor's call that was timed; None: one of NCCL's."""

    def is_under(self, floor: float, *, expected: bool) -> bool:
        """Whether the key counts as under the floor.

        With `expected` the ratio decides, otherwise the lower bound. The lower bound also decides
        where noise hides a loss as large as the floor allows: a ratio over the floor may be luck
        there, and a profile has to show that it does no harm.
        """
        hidden = self.resolution > 1.0 - floor
        return (self.ratio if expected and not hidden else self.low) < floor


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of judging a profile against the floor."""

    profile: ProcessProfile
    worst: KeyRatio | None
    """The lowest key of those under the floor, else of all; None: the profile is stock."""
    holds: bool
    """Whether no key is under the floor."""
    starts: int
    """Rounds of starts that timed it; 1: only its visit, compared with stock NCCL's first start."""
    proved: bool = False
    """Whether every key was shown to be at or above the floor."""
    own_choice: tuple[KeyRatio, ...] = ()
    """Ratios of NCCL's own choice under the profile, for keys that were timed in all rounds."""
    without_executor: tuple[KeyRatio, ...] = ()
    """Ratios of NCCL's best call for keys that were judged by schedules."""
    wrong: str = ""
    """The key whose data are wrong under the profile, and how; empty: none was found."""
    beside: MeasuredGain | None = None
    """The mean gain beside computation, if jobs lose by the profile there."""
    untuned: tuple[KeyRatio, ...] = ()
    """Ratios of NCCL's own choice on communicators that were not tuned, if they were timed."""


@dataclass(frozen=True, slots=True)
class Finalist:
    """A profile that is started in turn with stock NCCL and other finalists."""

    profile: ProcessProfile
    """Any profile but stock's."""
    calls: Mapping[Task, Sequence[Config]]
    """NCCL's calls of each key that may be the worst; the best call counts. All finalists have the
    same keys."""
    schedules: Mapping[Task, Config] = field(default_factory=dict)
    """Schedules that serve some of these keys."""


def loss_without_executor(verdict: Verdict, floor: float) -> KeyRatio | None:
    """The served key that NCCL's calls leave least of, if that is known to be under the floor.

    One start shows it by its upper bound alone.
    """
    under = [
        key
        for key in verdict.without_executor
        if (key.ratio if verdict.starts > 1 else key.high) < floor
    ]
    return min(under, key=lambda key: (key.ratio, key.task), default=None)


def judged(profile: ProcessProfile, keys: Sequence[KeyRatio], floor: float, starts: int) -> Verdict:
    """Judge a profile by the ratios of its keys: by lower bounds before the last look."""
    expected = starts >= MOST_STARTS
    under = [key for key in keys if key.is_under(floor, expected=expected)]
    worst = min(under or keys, key=lambda key: (key.ratio, key.task), default=None)
    return Verdict(profile, worst, not under, starts, all(key.low >= floor for key in keys))


class Rounds:
    """Rounds of starts of stock NCCL and profiles in turn, and the ratios of their calls so far."""

    def __init__(self, finalists: Sequence[Finalist], fresh: Fresh) -> None:
        """Begin without a round.

        Args:
            finalists: The profiles.
            fresh: Takes samples; changes the profile of the workers as needed.
        """
        self.finalists = tuple(finalists)
        self.number = 0
        """Number of complete rounds."""
        self.ratios: dict[ProcessProfile, Ratios] = {each.profile: {} for each in finalists}
        """Ratios of each profile's calls."""
        self._fresh = fresh
        self._stock_us: dict[Task, float] = {}
        self._times_us: dict[ProcessProfile, dict[tuple[Task, Config], float]] = {}

    def start(self, profile: ProcessProfile) -> None:
        """Time the calls of stock NCCL or of a finalist; those of other profiles are not timed."""
        if profile == STOCK.profile:
            self._stock_us = _time_stock(self.finalists[0], self._fresh)
        for finalist in self.finalists:
            if finalist.profile == profile:
                self._times_us[profile] = _time_finalist(finalist, self._fresh)

    def end(self) -> set[ProcessProfile]:
        """End the round; return the profiles that were timed, none where stock NCCL was not."""
        stock_us, times_us = self._stock_us, self._times_us
        self._stock_us, self._times_us = {}, {}
        if not stock_us:
            return set()
        self.number += 1
        for profile, by_call in times_us.items():
            for (task, config), time_us in by_call.items():
                logs = self.ratios[profile].setdefault((task, config), [])
                logs.append(math.log(stock_us[task] / time_us))
        return set(times_us)


def compare_in_turn(
    rounds: Rounds, floor: float, affords: Callable[[int], bool]
) -> dict[ProcessProfile, Verdict]:
    """Start stock NCCL and profiles in turn until one of them is clear of the floor.

    A profile that is clearly under it is started no more.

    Args:
        rounds: The profiles, and rounds that were begun for another reason; where the budget does
            not suffice for all rounds of all profiles, the last are left out.
        floor: Least ratio of a key.
        affords: Whether the budget pays for a number of further starts.

    Returns:
        The verdicts; none on profiles that the budget did not pay for.
    """
    verdicts: dict[ProcessProfile, Verdict] = {}
    remaining = list(rounds.finalists)
    while len(remaining) > 1 and not affords(MOST_STARTS * (1 + len(remaining))):
        remaining.pop()
    while True:
        if rounds.number in _LOOKS.planned:
            for finalist in tuple(remaining):
                verdict, is_under = _looked_at(finalist, rounds, floor)
                verdicts[finalist.profile] = verdict
                if is_under:
                    remaining.remove(finalist)
            if any(verdict.proved for verdict in verdicts.values()):
                break
        if rounds.number == MOST_STARTS:
            break
        # Rounds that do not reach the next look decide nothing.
        further = next(look for look in _LOOKS.planned if look > rounds.number) - rounds.number
        while remaining and not affords(further * (1 + len(remaining))):
            remaining.pop()
        if not remaining:
            break
        timed = _run_round(remaining, rounds, affords)
        remaining = [finalist for finalist in remaining if finalist.profile in timed]
    return verdicts


def _looked_at(finalist: Finalist, rounds: Rounds, floor: float) -> tuple[Verdict, bool]:
    """Verdict on a profile by the rounds so far, and whether it is clearly under the floor."""
    ratios, starts = rounds.ratios[finalist.profile], rounds.number
    keys, others = _by_job(finalist, ratios, starts, len(rounds.finalists))
    own = _own_choice(finalist, ratios, starts, len(rounds.finalists))
    verdict = judged(finalist.profile, keys, floor, starts)
    is_under = any(key.high < floor for key in keys)
    return replace(verdict, own_choice=own, without_executor=others), is_under


def suspects(ratios: Mapping[Task, float]) -> list[Task]:
    """The keys that may be the worst, by their ratios in one start."""
    return sorted(ratios, key=lambda task: (ratios[task], task))[:_SUSPECTS]


def key_ratios(
    tasks: Sequence[Task], ratios: Ratios, starts: int, profiles: int = 1
) -> list[KeyRatio]:
    """Bounds of each key, by its best call.

    Args:
        tasks: All keys that are judged together.
        ratios: Ratios of the profile's calls.
        starts: Number of rounds, at least 2; a call with fewer ratios has failed.
        profiles: Number of profiles that are judged together.
    """
    best: dict[Task, list[float]] = {}
    for (task, _), logs in ratios.items():
        if len(logs) == starts and (task not in best or fmean(logs) > fmean(best[task])):
            best[task] = logs
    error = _LOOKS.error_at(starts, _ERROR, last=starts == MOST_STARTS)
    of_profile = bonferroni(error, profiles)
    of_key = bonferroni(of_profile, max(1, len(tasks)))
    prior = VariancePrior.of(best.values())
    keys = []
    for task in tasks:
        if task not in best:
            keys.append(KeyRatio(task, 0.0, 0.0, 0.0))
            continue
        logs = best[task]
        mean = prior.of_mean(logs)
        ratio = geometric_mean(logs)
        low = student_interval(logs, mean, of_profile).low
        high = student_interval(logs, mean, of_key).high
        alone = student_interval(logs, mean, error)
        keys.append(KeyRatio(task, ratio, low, high, ratio - alone.low))
    return keys


def _by_job(
    finalist: Finalist, ratios: Ratios, starts: int, profiles: int
) -> tuple[list[KeyRatio], tuple[KeyRatio, ...]]:
    """Ratios of what a job gets, and of NCCL's best call for keys that schedules serve.

    A key that NCCL cannot run is served by none: not every call of its size may go to the executor.
    """
    by_nccl = {call: own for call, own in ratios.items() if not call[1].is_schedule}
    keys = key_ratios(list(finalist.calls), by_nccl, starts, profiles)
    if not finalist.schedules:
        return keys, ()
    by_schedule = {call: own for call, own in ratios.items() if call[1].is_schedule}
    runs = {key.task for key in keys if key.ratio}
    served = [
        replace(key, schedule=finalist.schedules[key.task])
        for key in key_ratios(list(finalist.schedules), by_schedule, starts, profiles)
        if key.low > CLEAR_GAIN and key.task in runs
    ]
    tasks = {key.task for key in served}
    left = [task for task in finalist.calls if task not in tasks]
    by_job = [*key_ratios(left, by_nccl, starts, profiles), *served]
    return by_job, tuple(key for key in keys if key.task in tasks)


def _own_choice(
    finalist: Finalist, ratios: Ratios, starts: int, profiles: int
) -> tuple[KeyRatio, ...]:
    """Ratios of keys under NCCL's own choice, where that ran in all rounds."""
    default = finalist.profile.default
    logs = {key: own for key, own in ratios.items() if key[1] == default and len(own) == starts}
    if not logs:
        return ()
    return tuple(key_ratios([task for task, _ in logs], logs, starts, profiles))


def _run_round(
    finalists: Sequence[Finalist], rounds: Rounds, affords: Callable[[int], bool]
) -> set[ProcessProfile]:
    """Start stock NCCL and each profile once; return the profiles that the budget paid for."""
    turns = [STOCK.profile, *(finalist.profile for finalist in finalists)]
    if len(finalists) > 1:  # Two that swap would begin a round without a restart.
        first = rounds.number % len(turns)
        turns = [*turns[first:], *turns[:first]]
    for profile in turns:
        if not affords(1):
            break
        rounds.start(profile)
    return rounds.end()


def _time_stock(finalist: Finalist, fresh: Fresh) -> dict[Task, float]:
    """Stock NCCL's times of the finalist's keys."""
    stock_us = {}
    for task in finalist.calls:
        try:
            stock_us[task] = median(fresh(task, STOCK, _SAMPLES))
        except ConfigurationFailedError as error:
            raise MeasurementError(
                f"stock NCCL stopped running {task.full_name}: {error}"
            ) from error
    return stock_us


def _time_finalist(finalist: Finalist, fresh: Fresh) -> dict[tuple[Task, Config], float]:
    """Times of the profile's calls, as far as they run."""
    times_us = {}
    for task, configs in finalist.calls.items():
        for config in configs:
            with suppress(ConfigurationFailedError):
                times_us[task, config] = median(fresh(task, config, _SAMPLES))
    for task, schedule in finalist.schedules.items():
        with suppress(ConfigurationFailedError):
            times_us[task, schedule] = median(fresh(task, schedule, _SAMPLES))
    return times_us
