"""What stays faster when the workers are started anew, where starts differ much.

A decision is taken within one start of the workers. On NVLink the same call takes the same from
start to start, within a few tenths of a per cent; over TCP it was seen to differ by 20 %, and a
call that won in one start may lose in the next. Where stock NCCL shows such differences, the best
call of each key, whether one start proved its gain or only showed it, and NCCL's own choice under
the profile are timed in several starts. A start gives one ratio per key, and a call becomes an
entry if the lower bound of the mean logarithm says that it gains. Keys that are proved, or that
gain nothing on average, are timed no more, so that later starts are for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import fmean, stdev, variance

from tuccl.decision import MIN_GAIN, Comparison, Decision
from tuccl.errors import ConfigurationFailedError
from tuccl.profile_floor import CONFIDENCE, student_quantile
from tuccl.search.config import Config, Task
from tuccl.spending import Spending

_LOOKS = (3, 5, 8, 12)
"""After so many starts it is asked which keys suffice."""
_FEW, _MANY = 6, 24
"""Samples of a call in a start: many where they are cheap,"""
_CALL_S = 0.05
"""which is where they take no longer than this together. The number is even: over TCP on four H200
every second launch of small messages took twice as long as the one before."""
_Logs = dict[Config, list[float]]
"""Logarithm of each call's time in each start."""


def seconds(restart_s: float, sample_s: Mapping[Task, float]) -> float:
    """What the fewest starts that tell anything take; another profile is up between two of them.

    Args:
        restart_s: For another process profile.
        sample_s: What one sample of each key takes.
    """
    return _LOOKS[0] * _seconds_of_start(restart_s, sample_s, dict.fromkeys(sample_s, 2))


def _seconds_of_start(
    restart_s: float, sample_s: Mapping[Task, float], calls: Mapping[Task, int]
) -> float:
    """So many calls of each key."""
    return 2.0 * restart_s + sum(
        count * _samples(sample_s[task]) * sample_s[task] for task, count in calls.items()
    )


def _samples(sample_s: float) -> int:
    if sample_s <= 0.0:
        return _MANY
    return max(_FEW, min(_MANY, int(_CALL_S / sample_s) // 2 * 2))


def interquartile_mean(values: Sequence[float]) -> float:
    """Of the middle half: deaf to outliers, as the median, but no lottery between two modes."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return fmean(ordered[quarter : len(ordered) - quarter])


def confirmed_over_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    others: Sequence[Config],
    spending: Spending,
    sample_s: Mapping[Task, float],
    progress: Callable[[int], None],
    keep_s: float = 0.0,
) -> dict[Task, Decision]:
    """The decisions by what outlasts a start: entries that do not are out, others may come in.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        others: The same under further profiles; the first that is another and runs serves to have
            the workers started anew. Where there is none, decisions stay.
        spending: Measures. Where its budget pays for fewer than three starts, decisions stay.
        sample_s: What one sample of each key takes.
        progress: Told how many starts there were.
        keep_s: What of the budget is not for this.
    """
    check = _Check(decisions, default, spending, sample_s)
    between = [other for other in others if other.profile != default.profile]
    starts = 0
    while check.open and starts < _LOOKS[-1]:
        left_s = spending.left_s - keep_s
        if left_s < check.seconds_of_start() * (1 if starts else _LOOKS[0]):
            break
        progress(starts)
        if not _runs_another(between, list(decisions), spending):
            break
        starts += 1
        check.time(starts)
        if starts in _LOOKS:
            check.look()
    if starts < _LOOKS[0]:
        return dict(decisions)
    check.look()
    return check.decisions


def _runs_another(between: list[Config], tasks: Sequence[Task], spending: Spending) -> bool:
    """Whether workers of another profile are up now; what runs for no key is struck off."""
    while between:
        for task in tasks:
            with suppress(ConfigurationFailedError):
                spending.fresh(task, between[0], 1)
                return True
        del between[0]
    return False


class _Check:
    """What starts have shown so far."""

    def __init__(
        self,
        decisions: Mapping[Task, Decision],
        default: Config,
        spending: Spending,
        sample_s: Mapping[Task, float],
    ) -> None:
        self.decisions = dict(decisions)
        self._likely = {task: _with_likely(decision) for task, decision in decisions.items()}
        self._default = default
        self._spending = spending
        self._sample_s = sample_s
        self._logs: dict[Task, _Logs] = {
            task: {config: [] for config in (default, *_entries(decision))}
            for task, decision in self._likely.items()
            if _entries(decision)
        }
        self.open: Collection[Task] = list(self._logs)
        """Keys of which further starts may tell more."""

    def seconds_of_start(self) -> float:
        """What the next start takes."""
        calls = {task: len(self._logs[task]) for task in self.open}
        return _seconds_of_start(self._spending.restart_s, self._sample_s, calls)

    def time(self, starts: int) -> None:
        """Time the open keys in the latest of so many starts, in turn forwards and backwards."""
        for task in self.open:
            calls = list(self._logs[task].items())
            for config, logs in calls[:: 1 if starts % 2 else -1]:
                if len(logs) < starts - 1:
                    continue  # It failed in a start, so that it has too few for good.
                with suppress(ConfigurationFailedError):
                    samples_us = self._spending.fresh(task, config, _samples(self._sample_s[task]))
                    logs.append(math.log(interquartile_mean(samples_us)))

    def look(self) -> None:
        """Decide the open keys by their starts so far, and close those that need no more."""
        quantile, pooled = self._noise()
        still_open = []
        for task in self.open:
            likely = self._likely[task]
            logs = self._logs[task]
            samples = len(logs[self._default]) * _samples(self._sample_s[task])
            compare = partial(_compared, logs, samples, quantile, pooled)
            self.decisions[task] = now = _again(likely, self._default, compare)
            dropped = now.rejected[len(likely.rejected) :]
            if any(one.lower_bound > 0.0 and one.ratio >= MIN_GAIN for one in dropped):
                still_open.append(task)
        self.open = still_open

    def _noise(self) -> tuple[float, float]:
        """Student's quantile, and the variance of a ratio's logarithm, over all keys together."""
        squares, freedom = 0.0, 0
        for logs in self._logs.values():
            reference = logs[self._default]
            for config, own in logs.items():
                if config != self._default and len(own) == len(reference) > 1:
                    gains = [b - a for a, b in zip(own, reference, strict=True)]
                    squares += (len(gains) - 1) * variance(gains)
                    freedom += len(gains) - 1
        error = (1.0 - CONFIDENCE) / len(_LOOKS)
        return student_quantile(1.0 - error, max(1, freedom)), squares / max(1, freedom)


def _with_likely(decision: Decision) -> Decision:
    """The decision as if what one start showed to be faster, but did not prove, were proved."""
    likely = sorted(
        (one for one in decision.rejected if one.ratio >= MIN_GAIN),
        key=lambda one: (-one.ratio, one.config),
    )
    builtins = (decision.builtin, *(one for one in likely if not one.config.is_schedule))
    schedules = (decision.schedule, *(one for one in likely if one.config.is_schedule))
    builtin = next((one for one in builtins if one is not None), None)
    schedule = next((one for one in schedules if one is not None), None)
    rejected = tuple(one for one in decision.rejected if one not in (builtin, schedule))
    return replace(decision, builtin=builtin, schedule=schedule, rejected=rejected)


def _entries(decision: Decision) -> tuple[Config, ...]:
    found = (decision.builtin, decision.schedule)
    return tuple(comparison.config for comparison in found if comparison is not None)


def _compared(
    logs: _Logs,
    samples: int,
    quantile: float,
    pooled: float,
    config: Config,
    reference: Config,
    before: Comparison,
) -> Comparison:
    """A call against a reference by its starts; never proved where one of the two failed."""
    times, others = logs[config], logs[reference]
    starts = len(times)
    if not len(others) == starts >= _LOOKS[0]:
        return replace(before, lower_bound=0.0)
    gains = [b - a for a, b in zip(times, others, strict=True)]
    width = quantile * math.sqrt(max(variance(gains), pooled) / starts)
    return Comparison(
        config=config,
        time_us=math.exp(fmean(times)),
        reference_us=math.exp(fmean(others)),
        ratio=math.exp(fmean(gains)),
        lower_bound=math.exp(fmean(gains) - width),
        samples=samples,
        spread=stdev(times),
    )


def _again(
    decision: Decision,
    default: Config,
    compare: Callable[[Config, Config, Comparison], Comparison],
) -> Decision:
    """The decision by what several starts showed."""
    dropped = []
    builtin, schedule = decision.builtin, decision.schedule
    if builtin is not None:
        builtin = compare(builtin.config, default, builtin)
        if not builtin.proved:
            dropped.append(builtin)
            builtin = None
    if schedule is not None:
        reference = default if builtin is None else builtin.config
        schedule = compare(schedule.config, reference, schedule)
        if not schedule.proved:
            dropped.append(schedule)
            schedule = None
    rejected = (*decision.rejected, *dropped)
    return replace(decision, builtin=builtin, schedule=schedule, rejected=rejected)
