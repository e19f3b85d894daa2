"""Proof that further variables are worth setting: starts with and without each of them in turn.

A race visits many profiles, each in one start of the workers, and takes the best, so what it saw of
the best is partly luck: starts differ by a few tenths of a per cent, over TCP by more. A variable
that a table sets has risks and has to be explained, so it is taken only if its gain shows again.
The profile, and the profile without each variable, are started in turn, and a round gives one ratio
for each variable: the weighted mean over all keys of the time without over the time with it. Its
lower bound is Student's, over two looks (`tuccl.search.statistics.looks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean, median, stdev

from tuccl.errors import ConfigurationFailedError
from tuccl.search.statistics.intervals import student_interval
from tuccl.search.statistics.looks import Looks, bonferroni
from tuccl.search.statistics.moderation import MeanError
from tuccl.search.trials.config import Task
from tuccl.search.trials.space import Knob
from tuccl.tuning.guaranteed_minimum import Rounds
from tuccl.tuning.profile_visits import Visit, weighted_gain
from tuccl.tuning.spending import Fresh

_LOOKS = Looks((3, 5), power=1.0)
FEWEST_ROUNDS, _MOST_ROUNDS = _LOOKS.planned[0], _LOOKS.planned[-1]
_ERROR = 0.05
"""Error of the claim that a variable gains anything, over all looks, variables and proofs."""
_SPENT = 0.8
"""Share of the error that is left which a proof spends: most races have one."""
PROOF_SAMPLES = 5
"""Samples of each key in a start."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a variable gains in starts with and without it in turn."""

    gain: float
    """Geometric mean over the rounds of the time without it over the time with it."""
    low: float
    """Lower bound; 0 if it is not known."""
    starts: int
    """Starts of each."""

    @property
    def holds(self) -> bool:
        """Whether it gains anything."""
        return self.low > 1.0


def worth_setting(
    visit: Visit,
    without: Mapping[Knob, Visit],
    fresh: Fresh,
    weights: Mapping[Task, float],
    affords: Callable[[int], bool],
    before: int = 0,
    floor_rounds: Rounds | None = None,
) -> dict[Knob, Proof]:
    """Return what each variable of a profile gains in fresh starts.

    Args:
        visit: The profile, with its best call of each key.
        without: The profile without each variable.
        fresh: Takes samples; changes the profile of the workers as needed.
        weights: Weight of each key; 1 where none is given.
        affords: Whether the budget pays for a number of further starts.
        before: Number of proofs that the race began before.
        floor_rounds: Rounds for the floor that share the starts; one of the profiles is stock
            NCCL's then.
    """
    of_proof = _SPENT * (1.0 - _SPENT) ** before * _ERROR
    logs: dict[Knob, list[float]] = {knob: [] for knob in without}
    # A machine that slows down must not speak for the variables.
    turns: list[Visit] = [*without.values(), visit]
    proofs = dict.fromkeys(without, Proof(1.0, 0.0, 0))
    for done in range(1, _MOST_ROUNDS + 1):
        if not affords(len(turns)):
            break
        times_us = {}
        for turn in turns:
            if floor_rounds is not None:
                floor_rounds.start(turn.profile)  # Before further calls make NCCL connect more.
            times_us[turn.profile] = _times_us(turn, fresh)
        if floor_rounds is not None:
            floor_rounds.end()
        if len(turns) > 2:  # Two that swap would begin a round without a restart.
            turns = [*turns[1:], turns[0]]
        for knob, other in without.items():
            ratio = _mean_log(times_us[other.profile], times_us[visit.profile], weights)
            logs[knob].append(ratio)
        if done in _LOOKS.planned:
            error = _LOOKS.error_at(done, of_proof, last=done == _MOST_ROUNDS)
            level = bonferroni(error, len(without))
            for knob, own in logs.items():
                proofs[knob] = Proof(math.exp(fmean(own)), _lower_bound(own, level), done)
            if all(proof.holds for proof in proofs.values()):
                break
    return proofs


def _times_us(visit: Visit, fresh: Fresh) -> dict[Task, float]:
    """Times of the best call of each key, in one start; those that fail are missing."""
    found = {}
    for task, (config, _) in visit.best.items():
        with suppress(ConfigurationFailedError):
            found[task] = median(fresh(task, config, PROOF_SAMPLES))
    return found


def _mean_log(
    without_us: Mapping[Task, float], with_us: Mapping[Task, float], weights: Mapping[Task, float]
) -> float:
    """Weighted mean over the keys of the logarithm of a ratio; no gain where a key fails."""
    if not without_us or without_us.keys() - with_us.keys():
        return -math.inf
    logs = {task: math.log(time_us / with_us[task]) for task, time_us in without_us.items()}
    return weighted_gain(logs, weights)


def _lower_bound(logs: list[float], level: float) -> float:
    if not all(map(math.isfinite, logs)):
        return 0.0
    error = stdev(logs) / math.sqrt(len(logs))
    if error == 0.0:
        return math.exp(fmean(logs))
    return student_interval(logs, MeanError(error, len(logs) - 1), level).low
