"""`StepGain`: what a step of a workload gains from a table on this installation.

A step's time is the sum of its calls' times, as if they ran one after another: what overlaps with
each other counts in full, and so does what overlaps with computation, unless calls were timed
beside it. Then a call's time is that until it and the computation beside it have ended. Where the
recording tells the exposed time of calls, the step's saving counts no more of a call than that.
Stock NCCL's times are taken as they are; the gain of each key has the bounds of its own
comparisons, and keys are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from lookup_tables.table import Key
from tuccl.reports.job_gains import JobGains, KeyGain
from tuccl.reports.keys import Gain, KeyFigures, TunedCall
from tuccl.reports.report import KeyReport, Report
from tuccl.search.statistics.intervals import Interval
from tuccl.search.statistics.sums import interval_of_sum
from tuccl.search.trials.config import Task
from tuccl.workloads.step_calls import LeftOut, StepCalls, times_per_step

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """The communication of a step of a workload, with stock NCCL and with a table."""

    workload: str
    """16 hex digits over the workload."""
    steps: float | None
    """Steps that the recording covers; None: unknown, and times are of the whole recording."""
    stock_us: float
    """Sum of the tuned calls' times, as if they ran one after another."""
    table_us: float
    gain: float
    low: float
    """Lower bound of the gain; each bound is wrong with a probability of 2.5 %."""
    high: float | None
    """Upper bound of the gain; None: unknown."""
    confidence: float = CONFIDENCE
    """Confidence of both bounds together."""
    untuned_share: float
    """Share of the step's bytes that are of operations that TuCCL does not tune."""
    left_out_share: float
    """Share of the bytes of calls that are left out here: this machine has no such communicators,
    or a record no size near."""
    saved_us: float | None = None
    """Time by which the step itself is shorter; None: the recording has no exposed times."""
    beside_computation: bool = False
    """Whether a call's time is that until it and the computation beside it have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKey(TunedCall):
    """The calls of a step that one key stands for."""

    calls_per_step: float
    """Calls of one rank, of all sizes that the key stands for."""
    stock_us: float
    """Time of these calls in a step."""
    table_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGain(StepSummary):
    """The gain of a step, with the keys that it is the sum of."""

    keys: tuple[StepKey, ...] = ()
    """Those that take longest with stock NCCL first; empty in what a manifest tells."""
    left_out: tuple[LeftOut, ...] = ()
    """Calls that are not tuned, and why; empty as `keys`."""

    @property
    def summary(self) -> StepSummary:
        """The sums alone."""
        own = {field.name: getattr(self, field.name) for field in fields(StepSummary)}
        return StepSummary(**own)


def step_of(report: Report, gains: JobGains) -> StepGain | None:
    """Return the gain of a step from a run's table; None if it was tuned for no workload."""
    if report.workload is None:
        return None
    return step_gain(report.workload, gains, beside_computation=bool(report.computations))


def step_gain(calls: StepCalls, gains: JobGains, *, beside_computation: bool = False) -> StepGain:
    """Return the gain of a step from the table that these calls were tuned for.

    Args:
        calls: The calls of a step.
        gains: The gains of their keys.
        beside_computation: Whether calls were timed beside computation.
    """
    by_task = {gain.task: gain for gain in gains.keys}
    times = times_per_step(calls.keys, {key.task: by_task[key.task].stock_us for key in calls.keys})
    served: dict[tuple[Task, Gain], float] = {}
    keys = []
    saved_us = 0.0
    for key in calls.keys:
        table_us = 0.0
        for size in key.sizes:
            time_us = times[key.task][size.size_bytes]
            of_key, gain = _serving(gains, by_task[key.task], size.size_bytes)
            own_us = time_us / gain.ratio
            served[of_key, gain] = served.get((of_key, gain), 0.0) + own_us
            table_us += own_us
            saved_us += size.saved_us(time_us, own_us, beside_computation=beside_computation)
        keys.append(
            StepKey(
                operation=key.task.operation,
                size_bytes=key.task.size_bytes,
                shape=key.task.shape,
                calls_per_step=key.calls_per_step,
                stock_us=sum(times[key.task].values()),
                table_us=table_us,
            )
        )
    stock_us = sum(key.stock_us for key in keys)
    table_us = sum(key.table_us for key in keys)
    bounds = interval_of_sum(
        (time_us, _time_bounds(time_us, gain)) for (_, gain), time_us in served.items()
    )
    return StepGain(
        workload=calls.digest,
        steps=calls.steps,
        stock_us=stock_us,
        table_us=table_us,
        gain=stock_us / table_us,
        low=stock_us / bounds.high,
        high=stock_us / bounds.low if bounds.low > 0.0 else None,
        untuned_share=calls.untuned_share,
        left_out_share=calls.left_out_share,
        saved_us=saved_us if calls.tells_exposed_time else None,
        beside_computation=beside_computation,
        keys=tuple(sorted(keys, key=lambda key: (-key.stock_us, key.task))),
        left_out=calls.left_out,
    )


def _serving(gains: JobGains, key: KeyGain, size_bytes: int) -> tuple[Task, Gain]:
    """Return the gain of a call near a key, and the key whose gain it is.

    It is that of the entry that serves the call; without one NCCL's own choice runs.
    """
    served: list[tuple[Key | KeyReport, KeyFigures]] = [*gains.learned]
    # A key without an entry has a range, too, in which a learned one may lie: that comes first.
    served += ((own.decision, own) for own in gains.keys)
    for within, own in served:
        is_curve = (own.operation, own.shape) == (key.operation, key.shape)
        if is_curve and within.min_bytes <= size_bytes <= within.max_bytes:
            return own.task, own.gain or key.own_choice
    return key.task, key.own_choice


def _time_bounds(time_us: float, gain: Gain) -> Interval:
    """Return the bounds of a time that a key's gain leaves."""
    return Interval(
        0.0 if gain.high is None else time_us * gain.ratio / gain.high,
        time_us * gain.ratio / gain.low if gain.low else math.inf,
    )
