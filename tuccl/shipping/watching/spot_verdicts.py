"""The verdict on a spot measurement: whether a key keeps what the table promises.

Stock NCCL and the table run in a start of their own each, so that the gain now differs from the
promise by the noise of these two starts, that of the launches, and that of the promise itself. A
key is suspect only where the upper bound of its gain is below the lower bound of the promise by
more than the table's deviation from start to start. A call may also be slow both with and without
the table; it is suspect where the lower bounds of both times are a quarter above the recorded ones.
Times differ more than gains do, as clocks and other users of a host move both alike.

A suspicion counts only if a second pair of starts gives it again, so that a false alarm needs two
errors. The bounds hold for all keys together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist, fmean

from tuccl.search.statistics.distributions import student_quantile
from tuccl.search.statistics.intervals import START_ERROR, Interval
from tuccl.search.statistics.looks import bonferroni
from tuccl.search.statistics.pooling import PooledVariance
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.words.sizes import format_size

ERROR = 0.001
"""Probability that any key of a pair of starts is suspect by noise alone."""
SLOWER = 1.25
"""Ratio to the recorded time from which a call counts as slow."""


class Suspicion(StrEnum):
    """A fault of a key, beyond the noise."""

    SLOWER_THAN_PROMISED = "slower_than_promised"
    """The gain over stock NCCL is less than the table states."""
    SLOWER_THAN_RECORDED = "slower_than_recorded"
    """The call takes longer than when the table was measured."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Figures of a table for a key."""

    gain: float
    bounds: Interval | None
    """Bounds of the gain; None where it was not measured against stock NCCL."""
    time_us: float
    stock_us: float
    deviation: float
    """Deviation of the logarithm of a time from start to start."""
    like: str = ""
    """GPUs of a communicator, where the entry is for those like it alone; empty: for any."""

    @property
    def least(self) -> float:
        """The lower bound of the gain, less the deviation from start to start."""
        low = self.gain * math.exp(-self.deviation) if self.bounds is None else self.bounds.low
        return low * math.exp(-self.deviation)


@dataclass(frozen=True, slots=True)
class SpotTimes:
    """Times of a key in one pair of starts, two each at least."""

    stock_us: Sequence[float]
    table_us: Sequence[float]


@dataclass(frozen=True, slots=True)
class SpotVerdict:
    """The outcome of a key."""

    task: Task
    promise: Promise
    gain: float
    high: float
    """Upper bound of the gain."""
    stock_us: float
    table_us: float
    suspicion: Suspicion | None

    @property
    def name(self) -> str:
        """For people: `all_gather 1M`, with GPUs of a communicator where its entry is its own."""
        like = f", like {self.promise.like}" if self.promise.like else ""
        return f"{self.task.operation.value} {format_size(self.task.size_bytes)}{like}"


def promise_of(table: ShippedTable, task: Task) -> Promise | None:
    """Return the figures of a table for a key; None where it states none."""
    entry, gain = table.tuned_entry(task), table.promised(task)
    if entry is None or gain is None:
        return None
    deviation = max(START_ERROR, entry.spread)
    bounds = table.promise_bounds(task)
    stock_us = entry.default_time_us
    return Promise(gain, bounds, stock_us / gain, stock_us, deviation, table.example(task))


def judge(
    promises: Mapping[Task, Promise], times: Mapping[Task, SpotTimes]
) -> tuple[SpotVerdict, ...]:
    """Return the verdicts on all keys of one pair of starts.

    A few passes say little about the noise of a key, so that the variances of all are pooled.
    """
    error = bonferroni(ERROR, len(promises))
    logs = {
        (task, side): [math.log(time_us) for time_us in values]
        for task, found in times.items()
        for side, values in enumerate((found.stock_us, found.table_us))
    }
    means = {place: _mean(place, logs, error) for place in logs}
    return tuple(
        _verdict(task, promise, means[task, 0], means[task, 1], error)
        for task, promise in promises.items()
    )


@dataclass(frozen=True, slots=True)
class _Mean:
    """The mean logarithm of times of one start, and how far it may be off by their noise."""

    log: float
    reach: float


_Place = tuple[Task, int]
"""A key, and 0 for stock NCCL or 1 for the table."""


def _mean(place: _Place, logs: Mapping[_Place, Sequence[float]], error: float) -> _Mean:
    others = PooledVariance.of(values for key, values in logs.items() if key != place)
    mean = others.of_mean(logs[place], together=len(logs))
    return _Mean(fmean(logs[place]), student_quantile(1.0 - error, mean.degrees) * mean.error)


def _verdict(task: Task, promise: Promise, stock: _Mean, table: _Mean, error: float) -> SpotVerdict:
    starts = NormalDist().inv_cdf(1.0 - error) * promise.deviation
    gain = math.exp(stock.log - table.log)
    # Errors of two starts and of their launches are independent: their squares add.
    high = gain * math.exp(math.hypot(stock.reach, table.reach, starts, starts))
    suspicion = None
    if high < promise.least:
        suspicion = Suspicion.SLOWER_THAN_PROMISED
    elif all(
        mean.log - math.hypot(mean.reach, starts, starts) > math.log(SLOWER * recorded_us)
        for mean, recorded_us in ((stock, promise.stock_us), (table, promise.time_us))
    ):
        suspicion = Suspicion.SLOWER_THAN_RECORDED
    stock_us, table_us = math.exp(stock.log), math.exp(table.log)
    return SpotVerdict(task, promise, gain, high, stock_us, table_us, suspicion)
