"""Whether entries stay faster when the workers are started anew, where starts differ much.

A decision is taken within one start of the workers. On NVLink the same call takes the same from
start to start, within a few tenths of a per cent; over TCP it was seen to differ by 20 %, and an
entry that won in one start may lose in the next. Where stock NCCL shows such differences, entries
and NCCL's own choice under the profile are timed in several starts. A start gives one ratio, and an
entry stays if the lower bound of their mean logarithm says that it gains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import fmean, median, stdev, variance

from tuccl.decision import Comparison, Decision
from tuccl.errors import ConfigurationFailedError
from tuccl.profile_floor import CONFIDENCE, student_quantile
from tuccl.search.config import Config, Task
from tuccl.spending import Spending

_LOOKS = (3, 5, 8)
"""After so many starts it ends if every entry is proved, or its loss."""
_SAMPLES = 5
"""Of each call in a start."""
_Logs = Mapping[Config, Sequence[float]]
"""Logarithm of a call's time in each start."""


def seconds(restart_s: float, sample_s: float) -> float:
    """What the fewest starts that tell anything take; another profile is up between two of them.

    Args:
        restart_s: For another process profile.
        sample_s: One sample of every key.
    """
    return _LOOKS[0] * _seconds_of_start(restart_s, sample_s, 2)


def _seconds_of_start(restart_s: float, sample_s: float, calls: int) -> float:
    """So many calls of each key, and a sample of each under the other profile."""
    return 2.0 * restart_s + (1 + calls * _SAMPLES) * sample_s


def confirmed_over_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    others: Sequence[Config],
    spending: Spending,
    sample_s: float,
    progress: Callable[[int], None],
) -> dict[Task, Decision]:
    """The decisions, without entries whose gain does not outlast a start.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        others: The same under further profiles; the first that is another and runs serves to have
            the workers started anew. Where there is none, decisions stay.
        spending: Measures. Where its budget pays for fewer than three starts, decisions stay.
        sample_s: What one sample of every key takes.
        progress: Told how many starts there were.
    """
    logs: dict[Task, dict[Config, list[float]]] = {
        task: {config: [] for config in (default, *_entries(decision))}
        for task, decision in decisions.items()
        if _entries(decision)
    }
    between = [other for other in others if other.profile != default.profile]
    if not logs:
        return dict(decisions)
    start_s = _seconds_of_start(spending.restart_s, sample_s, max(map(len, logs.values())))
    starts = 0
    while starts < _LOOKS[-1]:
        if spending.left_s < (start_s if starts else _LOOKS[0] * start_s):
            break
        progress(starts)
        if not _runs_another(between, list(logs), spending):
            break
        starts += 1
        for task, calls in logs.items():
            for config, times in calls.items():
                if len(times) == starts - 1:
                    _time(times, task, config, spending)
        if starts in _LOOKS:
            again = _decided(decisions, default, logs, starts)
            if not any(_is_open(decisions[task], again[task]) for task in logs):
                return again
    return dict(decisions) if starts < _LOOKS[0] else _decided(decisions, default, logs, starts)


def _runs_another(between: list[Config], tasks: Sequence[Task], spending: Spending) -> bool:
    """Whether workers of another profile are up now; what runs for no key is struck off."""
    while between:
        ran = False
        for task in tasks:
            with suppress(ConfigurationFailedError):
                spending.fresh(task, between[0], 1)
                ran = True
        if ran:
            return True
        del between[0]
    return False


def _is_open(before: Decision, now: Decision) -> bool:
    """Whether an entry was dropped that further starts may prove."""
    dropped = now.rejected[len(before.rejected) :]
    return any(one.lower_bound and one.ratio**2 / one.lower_bound > 1.0 for one in dropped)


def _time(times: list[float], task: Task, config: Config, spending: Spending) -> None:
    """Another start's time; none where the call fails now, so that it has too few."""
    try:
        times.append(math.log(median(spending.fresh(task, config, _SAMPLES))))
    except ConfigurationFailedError:
        return


def _entries(decision: Decision) -> tuple[Config, ...]:
    found = (decision.builtin, decision.schedule)
    return tuple(comparison.config for comparison in found if comparison is not None)


def _decided(
    decisions: Mapping[Task, Decision],
    default: Config,
    logs: Mapping[Task, _Logs],
    starts: int,
) -> dict[Task, Decision]:
    spreads = [
        variance([a - b for a, b in zip(calls[default], times, strict=True)])
        for calls in logs.values()
        for config, times in calls.items()
        if config != default and len(times) == len(calls[default]) == starts
    ]
    pooled = fmean(spreads) if spreads else 0.0
    error = (1.0 - CONFIDENCE) / len(_LOOKS)
    quantile = student_quantile(1.0 - error, max(1, len(spreads) * (starts - 1)))

    def compared(task: Task, config: Config, reference: Config, before: Comparison) -> Comparison:
        times, others = logs[task][config], logs[task][reference]
        if not len(times) == len(others) == starts:
            return replace(before, lower_bound=0.0)
        gains = [b - a for a, b in zip(times, others, strict=True)]
        width = quantile * math.sqrt(max(variance(gains), pooled) / starts)
        return Comparison(
            config=config,
            time_us=math.exp(fmean(times)),
            reference_us=math.exp(fmean(others)),
            ratio=math.exp(fmean(gains)),
            lower_bound=math.exp(fmean(gains) - width),
            samples=starts * _SAMPLES,
            spread=stdev(times),
        )

    return {
        task: _again(decision, default, lambda *one, task=task: compared(task, *one))
        if task in logs
        else decision
        for task, decision in decisions.items()
    }


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
