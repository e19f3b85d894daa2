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
from collections.abc import Sequence
from dataclasses import dataclass

from lookup_tables.confirmation import Reference
from lookup_tables.table import Operation, Shape
from tuccl.reports.job_gains import JobGains, KeyGain, Runner
from tuccl.reports.report import ComparisonReport, Report
from tuccl.search.statistics.intervals import START_ERROR, UNKNOWN, Interval
from tuccl.search.statistics.sums import interval_of_sum, log_widths, together
from tuccl.search.trials.config import Task
from tuccl.workloads.step_calls import StepCalls, times_per_step

CONFIDENCE = 0.95
_EACH_BOUND = 1.0 - (1.0 - CONFIDENCE) / 2.0
_CERTAIN = Interval(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class KeyTime:
    """The time of a step that the calls of one key take."""

    task: Task
    calls_per_step: float
    stock_us: float
    table_us: float


@dataclass(frozen=True, slots=True)
class StepGain:
    """The communication of a step with stock NCCL and with a table."""

    calls: StepCalls
    stock_us: float
    table_us: float
    interval: Interval
    """Bounds of the gain; each is wrong with a probability of 2.5 %."""
    keys: tuple[KeyTime, ...]
    """Those that take longest with stock NCCL first."""
    saved_us: float | None = None
    """Time by which the step itself is shorter; None: exposed times are unknown."""
    beside_computation: bool = False
    """Whether times hold the computation beside the calls."""

    @property
    def gain(self) -> float:
        """Stock NCCL's time over that with the table."""
        return self.stock_us / self.table_us


def step_of(report: Report, gains: JobGains) -> StepGain | None:
    """Return the gain of a step from a run's table; None where it was tuned for no workload."""
    if report.workload is None:
        return None
    return step_gain(
        report.workload,
        gains,
        max(START_ERROR, report.start_error),
        beside_computation=bool(report.computations),
    )


def step_gain(
    calls: StepCalls,
    gains: JobGains,
    start_error: float = START_ERROR,
    *,
    beside_computation: bool = False,
) -> StepGain:
    """Return the gain of a step from the table that these calls were tuned for.

    Args:
        calls: The calls of a step.
        gains: The gains of their keys.
        start_error: How far a ratio of times of two starts may be off, on logarithms.
        beside_computation: Whether calls were timed beside computation.
    """
    by_task = {_task_of(gain): gain for gain in gains.keys}
    stock_us = {key.task: by_task[key.task].key.stock_us for key in calls.keys}
    times = times_per_step(calls.keys, stock_us)
    curves: dict[tuple[Operation, Shape], list[KeyGain]] = {}
    for task, gain in by_task.items():
        curves.setdefault((task.operation, task.shape), []).append(gain)
    served: dict[Task, float] = {}
    keys = []
    saved_us = 0.0
    for key in calls.keys:
        table_us = 0.0
        for size in key.sizes:
            size_bytes, time_us = size.size_bytes, times[key.task][size.size_bytes]
            curve = curves[key.task.operation, key.task.shape]
            serving = _serving(curve, size_bytes) or by_task[key.task]
            own_us = time_us / serving.speedup
            served[_task_of(serving)] = served.get(_task_of(serving), 0.0) + own_us
            table_us += own_us
            saved_us += size.saved_us(time_us, own_us, beside_computation=beside_computation)
        of_key_us = sum(times[key.task].values())
        keys.append(KeyTime(key.task, key.calls_per_step, of_key_us, table_us))
    whole_us = sum(key.stock_us for key in keys)
    bounds = interval_of_sum(
        (time_us, _time_bounds(time_us, by_task[task], start_error))
        for task, time_us in served.items()
    )
    return StepGain(
        calls,
        whole_us,
        sum(key.table_us for key in keys),
        Interval(whole_us / bounds.high, whole_us / bounds.low if bounds.low > 0.0 else math.inf),
        tuple(sorted(keys, key=lambda key: (-key.stock_us, key.task))),
        saved_us if calls.tells_exposed_time else None,
        beside_computation,
    )


def _task_of(gain: KeyGain) -> Task:
    key = gain.key
    if key.shape is None:
        raise ValueError("a report of a release without workloads")
    return Task(Operation(key.operation), key.size_bytes, key.shape)


def _serving(curve: Sequence[KeyGain], size_bytes: int) -> KeyGain | None:
    """Return the key whose entry serves a call of this size."""
    holding = (each for each in curve if each.key.min_bytes <= size_bytes <= each.key.max_bytes)
    return next(holding, None)


def _time_bounds(time_us: float, gain: KeyGain, start_error: float) -> Interval:
    """Return the bounds of a time that a key's gain leaves."""
    widths = _widths(gain, start_error)
    return Interval(
        time_us * math.exp(-widths.high),
        time_us * math.exp(widths.low) if widths.low < math.inf else math.inf,
    )


def _widths(gain: KeyGain, start_error: float) -> Interval:
    """Return the distances of a key's gain over stock NCCL from its bounds, on logarithms."""
    key = gain.key
    if gain.runner is Runner.NCCL:
        return _CERTAIN
    links = []
    reference: Reference | None = Reference.PROFILE
    if gain.runner is Runner.EXECUTOR and key.schedule is not None:
        links.append(key.schedule)
        reference = key.schedule.reference
    if key.builtin is not None and (gain.runner is Runner.PLUGIN or reference is Reference.BUILTIN):
        links.append(key.builtin)
        reference = key.builtin.reference
    widths = [_compared(link) for link in links]
    if reference is Reference.PROFILE:
        widths.append(_profile(gain, start_error))
    return together(widths)


def _compared(compared: ComparisonReport) -> Interval:
    high = UNKNOWN.high if compared.upper_bound is None else compared.upper_bound
    known = Interval(compared.lower_bound, high)
    return log_widths(compared.ratio, known, compared.confidence or _EACH_BOUND, _EACH_BOUND)


def _profile(gain: KeyGain, start_error: float) -> Interval:
    """Return the distances of the profile's own gain: two starts differ, if none were in turn."""
    in_turn = gain.key.profile_ratio
    if in_turn is None:
        return Interval(start_error, start_error)
    known = Interval(in_turn.low, in_turn.high)
    return log_widths(in_turn.ratio, known, _EACH_BOUND, _EACH_BOUND)
