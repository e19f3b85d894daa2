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
from statistics import NormalDist

from tuccl.reports.keys import Gain, KeyFigures
from tuccl.search.statistics.intervals import START_ERROR
from tuccl.search.statistics.looks import bonferroni
from tuccl.search.statistics.moderation import KnownMean, means_together
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.contenders import ShippedTable, StatedKey

ERROR = 0.001
"""Probability that any key of a pair of starts is suspect by noise alone."""
SLOWER = 1.25
"""Ratio to the recorded time from which a call counts as slow."""


_NEGLIGIBLE = 0.25
"""Share of the noise from start to start that the noise within a start may have: it widens the
bounds of a gain by 3 %."""


class Suspicion(StrEnum):
    """A fault of a key, beyond the noise."""

    SLOWER_THAN_PROMISED = "slower_than_promised"
    """The gain over stock NCCL is less than the table states."""
    SLOWER_THAN_RECORDED = "slower_than_recorded"
    """The call takes longer than when the table was measured."""


@dataclass(frozen=True, slots=True)
class SpotPromise:
    """What a table states for a key."""

    stated: StatedKey
    deviation: float
    """Deviation of the logarithm of a time from start to start."""

    @property
    def least(self) -> float:
        """The lower bound of the gain, less the deviation from start to start."""
        gain = self.stated.gain
        low = gain.ratio * math.exp(-self.deviation) if gain.low is None else gain.low
        return low * math.exp(-self.deviation)


@dataclass(frozen=True, slots=True)
class SpotTimes:
    """Times of a key in one pair of starts, two each at least."""

    stock_us: Sequence[float]
    table_us: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKey(KeyFigures):
    """A key that was measured."""

    table_us: float
    gain: Gain
    promised: Gain
    """The gain that the table states."""
    recorded_stock_us: float
    recorded_table_us: float
    suspicion: Suspicion | None
    """The fault beyond the noise; None: there is none."""


def promise_of(table: ShippedTable, task: Task) -> SpotPromise | None:
    """Return the figures of a table for a key; None if it states none."""
    entry, stated = table.tuned_entry(task), table.stated(task)
    if entry is None or stated is None:
        return None
    return SpotPromise(stated, max(START_ERROR, entry.spread))


def is_settled(
    promises: Mapping[Task, SpotPromise], times_us: Mapping[Task, Sequence[float]]
) -> bool:
    """Return whether further times of one start, two each at least, would hardly tell more."""
    error = bonferroni(ERROR, len(promises))
    logs = {task: [math.log(time_us) for time_us in times_us[task]] for task in promises}
    return all(
        mean.reach <= _NEGLIGIBLE * _starts_reach(promises[task], error)
        for task, mean in means_together(logs, error).items()
    )


def judge(
    promises: Mapping[Task, SpotPromise], times: Mapping[Task, SpotTimes]
) -> tuple[WatchedKey, ...]:
    """Return the verdicts on all keys of one pair of starts.

    A few passes say little about the noise of a key: its variance is moderated by those of all.
    """
    error = bonferroni(ERROR, len(promises))
    logs = {
        (task, side): [math.log(time_us) for time_us in values]
        for task, found in times.items()
        for side, values in enumerate((found.stock_us, found.table_us))
    }
    means = means_together(logs, error)
    return tuple(
        _verdict(promise, means[task, 0], means[task, 1], error)
        for task, promise in promises.items()
    )


def _starts_reach(promise: SpotPromise, error: float) -> float:
    """Return how far the logarithm of a start's times may be off by the start alone."""
    return NormalDist().inv_cdf(1.0 - error) * promise.deviation


def _verdict(promise: SpotPromise, stock: KnownMean, table: KnownMean, error: float) -> WatchedKey:
    """Return the verdict by the mean logarithms of the times of one start each."""
    stated, starts = promise.stated, _starts_reach(promise, error)
    ratio = math.exp(stock.value - table.value)
    # Errors of two starts and of their launches are independent: their squares add.
    reach = math.exp(math.hypot(stock.reach, table.reach, starts, starts))
    gain = Gain(ratio, ratio / reach, ratio * reach)
    suspicion = None
    if ratio * reach < promise.least:
        suspicion = Suspicion.SLOWER_THAN_PROMISED
    elif all(
        mean.value - math.hypot(mean.reach, starts, starts) > math.log(SLOWER * recorded_us)
        for mean, recorded_us in ((stock, stated.stock_us), (table, stated.table_us))
    ):
        suspicion = Suspicion.SLOWER_THAN_RECORDED
    return WatchedKey(
        operation=stated.operation,
        size_bytes=stated.size_bytes,
        shape=stated.shape,
        placement=stated.placement,
        stock_us=math.exp(stock.value),
        table_us=math.exp(table.value),
        gain=gain,
        runner=stated.runner,
        runs=stated.runs,
        starts=1,
        provenance=stated.provenance,
        promised=stated.gain,
        recorded_stock_us=stated.stock_us,
        recorded_table_us=stated.table_us,
        suspicion=suspicion,
    )
