"""The guaranteed minimum of a process profile: stock NCCL and profiles started in turn.

A profile holds for a whole process, so it may cost a small message a tenth of a microsecond that no
entry of the table gives back. The race looks at a profile in one start of the workers, and from
start to start the same call differs by a few tenths of a per cent, so what the race saw cannot tell
a loss of 1 % from none, nor which of profiles that gain alike loses least. Only one group of
workers can be up, so stock NCCL and the best profiles are started in turn, and a round of starts
gives one ratio for each profile and key; the starts are what costs, so all keys that may be the
worst are timed in each, and nothing else runs in it: the floor is for jobs that send small messages
and gain nothing elsewhere. (NCCL connects ranks at the first use of an algorithm. On four H200
under 64 channels small messages take up to 1 % longer once all algorithms and sizes have run.)

A ratio is stock's time over the profile's: below 1 is a loss. Its bounds are Student's on the mean
logarithm over the rounds, with the variance of all suspected keys (`tuccl.statistics.pooling`).
Both claims hold with the confidence over all looks and profiles together: that some key is under
the floor, for which the upper bounds allow for the number of keys (Bonferroni), and that none is,
for which each key has to show it, so that the lower bounds need no such allowance (an
intersection-union test: Berger, Technometrics 24, 1982, p. 295).

The order of several rotates from round to round, so that a machine which gets slower all the time
is not held against the profile that comes last. A single one always follows stock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean, median

from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.statistics.estimators import geometric_mean
from tuccl.statistics.intervals import student_interval
from tuccl.statistics.looks import Looks, bonferroni
from tuccl.statistics.pooling import PooledVariance
from tuccl.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.tuning.spending import Fresh

Ratios = dict[tuple[Task, Config], list[float]]
"""By key and call the logarithms of stock's time over the call's, one per round of starts."""
_LOOKS = Looks((3, 5), power=1.0)
"""After so many rounds of starts it is asked whether they suffice; after the last they have to. The
first profile that is clear of the floor ends them all."""
_ERROR = 0.042
"""Of a claim over all looks, 2.5 % of it at the first: a tolerance that a user sets is no entry of
a table."""
_FEWEST_STARTS, _MOST_STARTS = _LOOKS.planned[0], _LOOKS.planned[-1]
_SUSPECTS = 8
_SAMPLES = 11
"""Of each call in a start."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What a profile has to leave every key."""

    least: float
    """Stock NCCL's time over the profile's; 0.99 allows a key to take 1 % longer."""
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
    """Loss that is told from none, if the profile is judged alone."""

    def is_under(self, floor: float, *, expected: bool) -> bool:
        """Whether the key has to count as one that gets less than the floor.

        It has if it is expected to, or, where expectation is not to suffice, might. Nor does it
        suffice where noise hides a loss as large as the floor allows: a mean over the floor may be
        luck there, and a profile has to show that it does no harm.
        """
        hidden = self.resolution > 1.0 - floor
        return (self.ratio if expected and not hidden else self.low) < floor


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a profile."""

    profile: ProcessProfile
    worst: KeyRatio | None
    """Of the keys that are under the floor the lowest, else of all; None: the profile is stock."""
    holds: bool
    """Whether no key is under the floor."""
    starts: int
    """Rounds of starts that it was seen in; 1: stock's may be an older one, that of the race."""
    proved: bool = False
    """Whether every key was shown not to be under the floor."""
    own_choice: tuple[KeyRatio, ...] = ()
    """NCCL's own choice under the profile alone, of the keys that were timed in all rounds."""


@dataclass(frozen=True, slots=True)
class Finalist:
    """A profile that is started in turn with stock NCCL and others."""

    profile: ProcessProfile
    """Not the stock one."""
    calls: Mapping[Task, Sequence[Config]]
    """What may run for each key that may be the worst: of these the best counts. The keys are the
    same for all finalists."""


def judged(profile: ProcessProfile, keys: Sequence[KeyRatio], floor: float, starts: int) -> Verdict:
    """The verdict on a profile by what its keys show; by what is likely after the last look."""
    expected = starts >= _MOST_STARTS
    under = [key for key in keys if key.is_under(floor, expected=expected)]
    worst = min(under or keys, key=lambda key: (key.ratio, key.task), default=None)
    return Verdict(profile, worst, not under, starts, all(key.low >= floor for key in keys))


def compare_in_turn(
    finalists: Sequence[Finalist],
    floor: float,
    fresh: Fresh,
    affords: Callable[[int], bool],
) -> dict[ProcessProfile, Verdict]:
    """Start stock NCCL and profiles in turn until one of them is clear of the floor.

    A profile that is clearly under it is started no more.

    Args:
        finalists: The profiles; where a budget does not suffice for all, the last are left out.
        floor: Least ratio of a key.
        fresh: Gives samples; changes the profile of the workers as needed.
        affords: Whether so many further starts are paid for.

    Returns:
        The verdicts; none on what the budget did not suffice for.
    """
    ratios: dict[ProcessProfile, Ratios] = {one.profile: {} for one in finalists}
    verdicts: dict[ProcessProfile, Verdict] = {}
    left = list(finalists)
    while len(left) > 1 and not affords(_FEWEST_STARTS * (1 + len(left))):
        left.pop()
    for starts in range(1, _MOST_STARTS + 1):
        left = _one_round(left, starts - 1, ratios, fresh, affords)
        if starts in _LOOKS.planned:
            for one in tuple(left):
                keys = key_ratios(list(one.calls), ratios[one.profile], starts, len(finalists))
                own = _own_choice(one, ratios[one.profile], starts, len(finalists))
                verdict = judged(one.profile, keys, floor, starts)
                verdicts[one.profile] = replace(verdict, own_choice=own)
                if any(key.high < floor for key in keys):
                    left.remove(one)
        if not left or any(verdict.proved for verdict in verdicts.values()):
            break
    return verdicts


def suspects(ratios: Mapping[Task, float]) -> list[Task]:
    """The keys that may be the worst, by what one look showed."""
    return sorted(ratios, key=lambda task: (ratios[task], task))[:_SUSPECTS]


def key_ratios(
    tasks: Sequence[Task], ratios: Ratios, starts: int, profiles: int = 1
) -> list[KeyRatio]:
    """Bounds of each key, by its best call.

    Args:
        tasks: All keys that are judged together.
        ratios: Of the profile.
        starts: Rounds of starts, two at least; a call with fewer ratios failed in between.
        profiles: How many are judged together.
    """
    best: dict[Task, list[float]] = {}
    for (task, _), logs in ratios.items():
        if len(logs) == starts and (task not in best or fmean(logs) > fmean(best[task])):
            best[task] = logs
    error = _LOOKS.error_at(starts, _ERROR, last=starts == _MOST_STARTS)
    of_profile = bonferroni(error, profiles)
    of_key = bonferroni(of_profile, len(tasks))
    found = []
    for task in tasks:
        if task not in best:
            found.append(KeyRatio(task, 0.0, 0.0, 0.0))
            continue
        logs = best[task]
        others = PooledVariance.of(own for key, own in best.items() if key != task)
        mean = others.of_mean(logs, together=len(tasks) * len(_LOOKS.planned))
        ratio = geometric_mean(logs)
        low = student_interval(logs, mean, of_profile).low
        high = student_interval(logs, mean, of_key).high
        alone = student_interval(logs, mean, error)
        found.append(KeyRatio(task, ratio, low, high, ratio - alone.low))
    return found


def _own_choice(
    finalist: Finalist, ratios: Ratios, starts: int, profiles: int
) -> tuple[KeyRatio, ...]:
    """What keys get where no setting is chosen for them, as far as that ran in all rounds."""
    default = finalist.profile.default
    logs = {key: own for key, own in ratios.items() if key[1] == default and len(own) == starts}
    if not logs:
        return ()
    return tuple(key_ratios([task for task, _ in logs], logs, starts, profiles))


def _one_round(
    finalists: Sequence[Finalist],
    number: int,
    ratios: Mapping[ProcessProfile, Ratios],
    fresh: Fresh,
    affords: Callable[[int], bool],
) -> list[Finalist]:
    """A start of stock NCCL and one of each profile; the profiles that were paid for."""
    turns: list[Finalist | None] = [None, *finalists]
    if len(finalists) > 1:  # Of two, one would be last in a round and first in the next.
        first = number % len(turns)
        turns = [*turns[first:], *turns[:first]]
    stock_us: dict[Task, float] = {}
    times_us: list[tuple[Finalist, dict[tuple[Task, Config], float]]] = []
    for one in turns:
        if not affords(1):
            break
        if one is None:
            stock_us = _start_of_stock(finalists[0], fresh)
        else:
            times_us.append((one, _start_of(one, fresh)))
    if not stock_us:
        return []
    for one, by_call in times_us:
        for (task, config), time_us in by_call.items():
            logs = ratios[one.profile].setdefault((task, config), [])
            logs.append(math.log(stock_us[task] / time_us))
    paid = {one.profile for one, _ in times_us}
    return [one for one in finalists if one.profile in paid]


def _start_of_stock(finalist: Finalist, fresh: Fresh) -> dict[Task, float]:
    """Stock NCCL's times of the keys that may be the worst."""
    stock_us = {}
    for task in finalist.calls:
        try:
            stock_us[task] = median(fresh(task, STOCK, _SAMPLES))
        except ConfigurationFailedError as error:
            raise MeasurementError(f"stock NCCL stopped running {task.name}: {error}") from error
    return stock_us


def _start_of(finalist: Finalist, fresh: Fresh) -> dict[tuple[Task, Config], float]:
    """Times of the calls of a profile that run."""
    times_us = {}
    for task, configs in finalist.calls.items():
        for config in configs:
            with suppress(ConfigurationFailedError):
                times_us[task, config] = median(fresh(task, config, _SAMPLES))
    return times_us
