"""A key's decision by several starts: which of its calls are likely, and what their times prove.

One start may have been unlucky for the key that it searched, so what is timed over starts is what
it proved or showed to be faster, or else what was proved for the size above or below. What the
starts say replaces what the one had said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import stdev

from lookup_tables.confirmation import Estimator
from tuccl.statistics.estimators import geometric_mean, log_gains
from tuccl.statistics.intervals import UNKNOWN, student_interval, widened
from tuccl.statistics.looks import bonferroni
from tuccl.statistics.pooling import MeanError, PooledVariance
from tuccl.trials.config import Config, Task
from tuccl.tuning.decision import ERROR, MIN_GAIN, Comparison, Decision

_FINALISTS = 4
"""Calls of a key at most that one start compared: the best of them had most luck with it."""
_LUCK = 0.85
"""What one start showed to be slower than this is slower. Over TCP a start's ratio was off by 8 %
(the standard deviation), and calls that gain 12 % showed 0.94."""
Logs = dict[Config, list[float]]
"""Logarithm of each call's time in each start."""


def allowing_for_starts(
    decisions: Mapping[Task, Decision], default: Config, between: MeanError
) -> dict[Task, Decision]:
    """The decisions, each of one start, by bounds that allow for what another start might show.

    Args:
        decisions: By key.
        default: NCCL's own choice under the table's profile.
        between: How far a ratio of one start may be off others.
    """
    error = bonferroni(ERROR, _FINALISTS)

    def wider(_config: Config, _reference: Config, before: Comparison) -> Comparison:
        return replace(before, interval=widened(before.ratio, before.interval, between, error))

    return {task: decided_again(decision, default, wider) for task, decision in decisions.items()}


def proved_beside(task: Task, decisions: Mapping[Task, Decision]) -> Config | None:
    """What was proved for the size above or below, where that says more than the key's own start.

    A key that something was proved of keeps to that. Otherwise what was held against NCCL's own
    choice there counts for more than a neighbour: by what it gained, or unless it lost by far.
    """
    alike = sorted(
        (one for one in decisions if (one.operation, one.shape) == (task.operation, task.shape)),
        key=lambda one: one.size_bytes,
    )
    at = alike.index(task)
    nearby = (decisions[one].builtin for one in (*alike[max(0, at - 1) : at], *alike[at + 1 :][:1]))
    proved = [one for one in nearby if one is not None]
    decision = decisions[task]
    if decision.builtin is not None or not proved:
        return None
    best = max(proved, key=lambda one: (one.lower_bound, one.config))
    own = {one.config: one.ratio for one in decision.rejected if not one.config.is_schedule}
    shown = max(own.values(), default=0.0)
    if best.config in own:
        says_more = shown < MIN_GAIN and own[best.config] >= _LUCK
    else:
        says_more = shown < best.lower_bound
    return best.config if says_more else None


def with_likely(decision: Decision, suggested: Config | None, default: Config) -> Decision:
    """The decision as if what may be faster, but was not proved, were proved.

    Of the built-in calls that is what is suggested, or else what one start showed to be faster.
    """
    likely = sorted(
        (one for one in decision.rejected if one.ratio >= MIN_GAIN),
        key=lambda one: (-one.ratio, one.config),
    )
    builtins = (
        decision.builtin,
        None if suggested is None else _known(decision, suggested, default),
        *(one for one in likely if not one.config.is_schedule),
    )
    schedules = (decision.schedule, *(one for one in likely if one.config.is_schedule))
    builtin = next((one for one in builtins if one is not None), None)
    schedule = next((one for one in schedules if one is not None), None)
    taken = [one.config for one in (builtin, schedule) if one is not None]
    rejected = tuple(one for one in decision.rejected if one.config not in taken)
    return replace(decision, builtin=builtin, schedule=schedule, rejected=rejected)


def _known(decision: Decision, suggested: Config, default: Config) -> Comparison:
    """What one start showed of it; no samples where that is nothing."""
    default_us = decision.profile_default_us
    nothing = Comparison(
        config=suggested,
        reference=default,
        time_us=default_us,
        reference_us=default_us,
        ratio=1.0,
        interval=UNKNOWN,
        samples=0,
        spread=0.0,
        estimator=Estimator.MEAN_OVER_STARTS,
        starts=0,
    )
    return next((one for one in decision.rejected if one.config == suggested), nothing)


def entries_of(decision: Decision) -> tuple[Config, ...]:
    """The calls of a key that were proved."""
    found = (decision.builtin, decision.schedule)
    return tuple(comparison.config for comparison in found if comparison is not None)


def compared_over_starts(
    logs: Logs,
    starts: int,
    samples: int,
    others: PooledVariance,
    error: float,
    config: Config,
    reference: Config,
    before: Comparison,
) -> Comparison:
    """A call against a reference by its starts; never proved where one of the two failed."""
    times, references = logs[config], logs[reference]
    if not len(times) == len(references) == starts:
        return replace(before, interval=UNKNOWN)
    gains = log_gains(times, references)
    return Comparison(
        config=config,
        reference=reference,
        time_us=geometric_mean(times),
        reference_us=geometric_mean(references),
        ratio=geometric_mean(gains),
        interval=student_interval(gains, others.of_mean(gains), error),
        samples=starts * samples,
        spread=stdev(times),
        estimator=Estimator.MEAN_OVER_STARTS,
        starts=starts,
    )


def decided_again(
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
            # Of what was proved beside it and failed here nothing is known.
            dropped += [builtin] if builtin.samples else []
            builtin = None
    if schedule is not None:
        reference = default if builtin is None else builtin.config
        schedule = compare(schedule.config, reference, schedule)
        if not schedule.proved:
            dropped.append(schedule)
            schedule = None
    rejected = (*decision.rejected, *dropped)
    return replace(decision, builtin=builtin, schedule=schedule, rejected=rejected)
