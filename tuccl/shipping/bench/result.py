"""Results of a bench: each table's gain over stock NCCL, key by key, and its findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import geometric_mean, median

from lookup_tables.bundles.bundle import BundleEntry
from lookup_tables.table import Shape
from tuccl.reports.job_gains import Runner
from tuccl.search.statistics.intervals import Interval
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import STOCK, ShippedTable
from tuccl.shipping.bench.ratios import Gain, falls_short, key_gains, mean_gain
from tuccl.shipping.bench.rounds import Measured
from tuccl.shipping.bench.step import StepOutcome, step_outcome
from tuccl.workloads.step_calls import StepCalls

_FAR_BELOW = 0.5
"""Share of a key's median gain below which a round's is far off: noise of TCP is 15 %."""


class Finding(StrEnum):
    """A fault of a key, beyond the noise."""

    SLOWER_THAN_STOCK = "slower_than_stock"
    SLOWER_THAN_PROMISED = "slower_than_promised"


@dataclass(frozen=True, slots=True)
class KeyOutcome:
    """The outcome of a key under a table."""

    task: Task
    stock_us: float
    """Geometric mean over the rounds, as `time_us` is."""
    time_us: float
    gain: Gain
    """Gain over stock NCCL."""
    entry: BundleEntry | None
    runner: Runner
    promised: float | None
    """The gain that the table states; None where it states none."""
    promise_bounds: Interval | None
    """Bounds of that gain; None where the table states none."""
    round_gains: tuple[float, ...]
    """Gain in each round, which has processes of its own."""

    @property
    def has_slow_start(self) -> bool:
        """Whether it was slower than stock NCCL in a round, by far for this key."""
        worst = min(self.round_gains)
        return worst < 1.0 and worst < _FAR_BELOW * median(self.round_gains)

    @property
    def finding(self) -> Finding | None:
        """The fault of the key, if it has one."""
        if self.gain.high < 1.0:
            return Finding.SLOWER_THAN_STOCK
        if self.promised is not None and falls_short(self.gain, self.promised, self.promise_bounds):
            return Finding.SLOWER_THAN_PROMISED
        return None


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """The outcome of a table over all keys."""

    table: ShippedTable
    keys: tuple[KeyOutcome, ...]
    mean: Gain
    step: StepOutcome | None = None
    """The step of a workload; None: none was given."""

    @property
    def promised(self) -> tuple[int, float, float] | None:
        """Number of keys with a stated gain, and their geometric mean gains, stated and measured.

        None where the table states none.
        """
        pairs = [(key.promised, key.gain.ratio) for key in self.keys if key.promised is not None]
        if not pairs:
            return None
        stated, gained = zip(*pairs, strict=True)
        return len(pairs), geometric_mean(stated), geometric_mean(gained)

    def with_finding(self, finding: Finding) -> list[KeyOutcome]:
        """Return the keys with this finding."""
        return [key for key in self.keys if key.finding is finding]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Gains of the second table over the first."""

    keys: Mapping[Task, Gain]
    mean: Gain


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The outcomes of all tables, from the same rounds."""

    shape: Shape
    timing: Timing
    versions: str
    rounds: int
    seconds: float
    tables: tuple[TableOutcome, ...]
    comparison: Comparison | None
    """The second table against the first; None where there is one table."""

    def example(self, task: Task) -> str:
        """Return GPUs of a communicator of a placed key; empty for all siblings of its shape."""
        return self.tables[0].table.example(task)

    @property
    def has_findings(self) -> bool:
        """Whether any key has a finding."""
        return any(key.finding is not None for table in self.tables for key in table.keys)


def bench_result(
    measured: Measured,
    tables: Sequence[ShippedTable],
    shape: Shape,
    timing: Timing,
    calls: StepCalls | None = None,
) -> BenchResult:
    """Return the result of the times of all jobs.

    Args:
        measured: Times of stock NCCL and of these tables, two rounds at least.
        tables: One or two tables.
        shape: Shape of the communicator.
        timing: Conditions under which calls were timed.
        calls: The step of a workload, all of whose keys were timed; None: none was given.
    """
    times_us = measured.times_us
    comparison = None
    if len(tables) > 1:
        first_us, second_us = (times_us[table.name] for table in tables[:2])
        comparison = Comparison(key_gains(first_us, second_us), mean_gain(first_us, second_us))
    return BenchResult(
        shape,
        timing,
        measured.versions,
        measured.rounds,
        measured.seconds,
        tuple(_outcome(table, measured, calls) for table in tables),
        comparison,
    )


def _outcome(table: ShippedTable, measured: Measured, calls: StepCalls | None) -> TableOutcome:
    stock_us, own_us = measured.times_us[STOCK.name], measured.times_us[table.name]
    gains = key_gains(stock_us, own_us)
    keys = tuple(
        KeyOutcome(
            task,
            geometric_mean(stock_us[task]),
            geometric_mean(own_us[task]),
            gain,
            table.entry(task),
            _runner(table, task, measured.runners[table.name][task]),
            table.promised(task),
            table.promise_bounds(task),
            tuple(us / own for us, own in zip(stock_us[task], own_us[task], strict=True)),
        )
        for task, gain in gains.items()
    )
    step = None if calls is None else step_outcome(calls, table, stock_us, own_us)
    return TableOutcome(table, keys, mean_gain(stock_us, own_us), step)


def _runner(table: ShippedTable, task: Task, ran_by: str) -> Runner:
    if ran_by == Runner.EXECUTOR:
        return Runner.EXECUTOR
    entry = table.entry(task)
    if entry is not None and entry.builtin is not None:
        return Runner.PLUGIN
    return Runner.PROFILE if table.bundle.profile else Runner.NCCL
