"""A key's decision over several starts: the calls worth timing, and what their times prove.

The start that searched a key may have been unlucky for it. So the calls timed over starts are those
that it proved or showed to be faster, or else the winner of the size above or below. The comparison
over starts replaces the comparison of the single start.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from lookup_tables.confirmation import Estimator
from lookup_tables.table import Shape
from tuccl.search.statistics.distributions import student_quantile
from tuccl.search.statistics.estimators import geometric_mean, log_gains
from tuccl.search.statistics.intervals import UNKNOWN, Interval, student_interval, widened
from tuccl.search.statistics.looks import bonferroni
from tuccl.search.statistics.moderation import MeanError, VariancePrior
from tuccl.search.trials.config import Config, Task
from tuccl.tuning.decision import (
    ERROR,
    MIN_GAIN,
    Comparison,
    Decision,
    best_of,
)

_FINALISTS = 4
"""Most calls of a key that one start compares, for which the bounds of the best allow."""
_ALLOWED = bonferroni(ERROR, 2 * _FINALISTS)
"""Error of a bound that allows for other starts, by either of two estimates of what they differ by:
that of stock NCCL's times, and that of other keys' starts."""
_ALIKE_SAMPLES = 10
"""Samples of a schedule that count as much as what all schedules show of their stalls."""
Logs = dict[Config, list[float]]
"""Logarithm of each call's time in each start."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Calls that vary alike from start to start.

    Schedules keep more cores and connections busy than NCCL's settings: where others used the cores
    of two nodes over TCP, too, a ratio varied by 27 % for schedules and by 7 % for settings.
    """

    shape: Shape
    is_schedule: bool

    @classmethod
    def of(cls, task: Task, config: Config) -> Kind:
        """Return the kind of a key's call."""
        return cls(task.shape, config.is_schedule)


def reach_of_one_start(between: MeanError) -> float:
    """How far the logarithm of one start's ratio may be off, by what starts differ by."""
    return student_quantile(1.0 - _ALLOWED, between.degrees) * between.error


def allowing_for_starts(
    decisions: Mapping[Task, Decision], default: Config, between: Mapping[Kind, MeanError]
) -> dict[Task, Decision]:
    """Widen the bounds of decisions of one start by the deviation from start to start.

    Args:
        decisions: By key.
        default: NCCL's own choice under the table's profile.
        between: Error of one start's ratio.
    """

    def allowed(task: Task, decision: Decision) -> Decision:
        def wider(config: Config, reference: Config, before: Comparison) -> Comparison:
            # A schedule that was compared with a built-in that is no longer an entry.
            if before.reference != reference and decision.builtin is not None:
                before = _chained(before, decision.builtin)
            of_kind = between[Kind.of(task, config)]
            return replace(
                before, interval=widened(before.ratio, before.interval, of_kind, _ALLOWED)
            )

        return decided_again(decision, default, wider)

    return {task: allowed(task, own) for task, own in decisions.items()}


def _chained(comparison: Comparison, of_reference: Comparison) -> Comparison:
    """Compare a call with the reference of its reference, by two comparisons of one start.

    The ratios multiply. Both share the samples of the call between them, which cancel in the
    product, so bounds whose widths add as squares are wider than needed.
    """
    bounds = (comparison.interval, of_reference.interval)
    ratios = (comparison.ratio, of_reference.ratio)
    down = math.hypot(*(math.log(r / b.low) for r, b in zip(ratios, bounds, strict=True)))
    up = math.hypot(*(math.log(b.high / r) for r, b in zip(ratios, bounds, strict=True)))
    ratio = math.prod(ratios)
    return replace(
        comparison,
        reference=of_reference.reference,
        reference_us=of_reference.reference_us,
        ratio=ratio,
        interval=Interval(ratio * math.exp(-down), ratio * math.exp(up)),
        samples=min(comparison.samples, of_reference.samples),
    )


def stall_costs(decisions: Iterable[Decision]) -> dict[str, float]:
    """Return how much longer than its median each schedule takes in the mean, over all keys.

    A schedule stalls alike at all sizes, but the few samples of a key seldom show it: over TCP
    those of eight lanes a rail stalled in 7 to 27 % of their launches, those of four in 1 to 3 %.
    Where a schedule has few samples on all keys, what all schedules show counts, too.
    """
    costs: dict[str, list[float]] = defaultdict(list)
    for decision in decisions:
        for comparison in (*decision.proved, *decision.rejected):
            if comparison.config.is_schedule:
                costs[comparison.config.schedule] += [comparison.stall_cost] * comparison.samples
    if not any(costs.values()):
        return {}
    alike = fmean(cost for own in costs.values() for cost in own)
    return {
        schedule: (sum(own) + _ALIKE_SAMPLES * alike) / (len(own) + _ALIKE_SAMPLES)
        for schedule, own in costs.items()
    }


def with_likely(
    decision: Decision, borrowed: Config | None, default: Config, costs: Mapping[str, float]
) -> Decision:
    """Promote the likeliest calls of a decision, so that starts compare them.

    Where no built-in is proved, that is the call borrowed from a neighbour, or else the built-in
    that one start showed to be faster; likewise for schedules, which are not borrowed.

    Args:
        decision: From one start.
        borrowed: The call borrowed from a neighbour.
        default: NCCL's own choice under the table's profile.
        costs: What `stall_costs` returns. A ratio of means counts the call's own stalls already.
    """

    def in_a_job(comparison: Comparison) -> float:
        cost = 1.0 if comparison.stalls else costs.get(comparison.config.schedule, 1.0)
        return comparison.ratio / cost

    likely = sorted(
        (comparison for comparison in decision.rejected if comparison.ratio >= MIN_GAIN),
        key=lambda comparison: (-in_a_job(comparison), comparison.config),
    )

    def likeliest(*, is_schedule: bool) -> Comparison | None:
        ranked = [each for each in likely if each.config.is_schedule is is_schedule]
        return best_of(ranked, in_a_job, is_hidden=decision.is_hidden)

    known = None if borrowed is None else _known(decision, borrowed, default)
    builtin = decision.builtin or known or likeliest(is_schedule=False)
    schedule = decision.schedule or likeliest(is_schedule=True)
    promoted = [comparison.config for comparison in (builtin, schedule) if comparison is not None]
    rejected = tuple(c for c in decision.rejected if c.config not in promoted)
    return replace(decision, builtin=builtin, schedule=schedule, rejected=rejected)


def _known(decision: Decision, borrowed: Config, default: Config) -> Comparison:
    """The comparison that the key's own start made of a borrowed call; empty if it made none."""
    default_us = decision.profile_default_us
    unmeasured = Comparison(
        config=borrowed,
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
    return next((c for c in decision.rejected if c.config == borrowed), unmeasured)


def entries_of(decision: Decision) -> tuple[Config, ...]:
    """The calls of a key that were proved faster."""
    return tuple(comparison.config for comparison in decision.proved)


def compared_over_starts(
    logs: Logs,
    starts: int,
    samples: int,
    stalls: Callable[[Config], int],
    prior: Callable[[Config], VariancePrior],
    error: float,
    config: Config,
    reference: Config,
    before: Comparison,
) -> Comparison:
    """Compare a call with a reference over starts; never proved where either failed."""
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
        interval=student_interval(gains, prior(config).of_mean(gains), error),
        samples=samples,
        spread=stdev(times),
        estimator=Estimator.MEAN_OVER_STARTS,
        starts=starts,
        stalls=stalls(config),
    )


def decided_again(
    decision: Decision,
    default: Config,
    compare: Callable[[Config, Config, Comparison], Comparison],
) -> Decision:
    """Repeat the comparisons of a decision; winners that are not proved again are rejected."""
    dropped = []
    builtin, schedule = decision.builtin, decision.schedule
    if builtin is not None:
        builtin = compare(builtin.config, default, builtin)
        if not builtin.proved:
            # A borrowed call that failed here has no samples to report.
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
