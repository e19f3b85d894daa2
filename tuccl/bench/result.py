"""What a bench shows: each table's gain over stock NCCL, key by key, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import geometric_mean

from lookup_tables.bundles.bundle import BundleEntry
from lookup_tables.table import Shape
from tuccl.bench.contenders import STOCK, ShippedTable
from tuccl.bench.ratios import Gain, falls_short, key_gains, mean_gain
from tuccl.bench.rounds import Measured
from tuccl.reports.job_gains import Runner
from tuccl.statistics.intervals import Interval
from tuccl.trials.config import Task
from tuccl.trials.timing import Timing


class Finding(StrEnum):
    """A key with which something is wrong, beyond the noise."""

    SLOWER_THAN_STOCK = "slower_than_stock"
    SLOWER_THAN_PROMISED = "slower_than_promised"


@dataclass(frozen=True, slots=True)
class KeyOutcome:
    """A key under a table."""

    task: Task
    stock_us: float
    """Geometric mean over the rounds, as the other."""
    time_us: float
    gain: Gain
    """Over stock NCCL."""
    entry: BundleEntry | None
    runner: Runner
    promised: float | None
    """The gain that the table states; None where it states none."""
    promise_bounds: Interval | None
    """Of that gain; None where the table tells none."""

    @property
    def finding(self) -> Finding | None:
        """What is wrong, if something is."""
        if self.gain.high < 1.0:
            return Finding.SLOWER_THAN_STOCK
        if self.promised is not None and falls_short(self.gain, self.promised, self.promise_bounds):
            return Finding.SLOWER_THAN_PROMISED
        return None


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """A table over all keys."""

    table: ShippedTable
    keys: tuple[KeyOutcome, ...]
    mean: Gain

    @property
    def promised(self) -> tuple[int, float, float] | None:
        """Number of keys with a stated gain, and over them the geometric means stated and gained.

        None where the table states none.
        """
        pairs = [(key.promised, key.gain.ratio) for key in self.keys if key.promised is not None]
        if not pairs:
            return None
        stated, gained = zip(*pairs, strict=True)
        return len(pairs), geometric_mean(stated), geometric_mean(gained)

    def with_finding(self, finding: Finding) -> list[KeyOutcome]:
        """The keys of which this was found."""
        return [key for key in self.keys if key.finding is finding]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second table over the first."""

    keys: Mapping[Task, Gain]
    mean: Gain


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All tables, from the same rounds."""

    shape: Shape
    timing: Timing
    versions: str
    rounds: int
    seconds: float
    tables: tuple[TableOutcome, ...]
    comparison: Comparison | None
    """None of one table."""

    @property
    def has_findings(self) -> bool:
        """Whether something is wrong with some key."""
        return any(key.finding is not None for one in self.tables for key in one.keys)


def bench_result(
    measured: Measured, tables: Sequence[ShippedTable], shape: Shape, timing: Timing
) -> BenchResult:
    """What the times of all jobs come to.

    Args:
        measured: Of stock NCCL and of these tables, two rounds at least.
        tables: One or two.
        shape: Of the communicator.
        timing: How calls were timed.
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
        tuple(_outcome(table, measured) for table in tables),
        comparison,
    )


def _outcome(table: ShippedTable, measured: Measured) -> TableOutcome:
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
        )
        for task, gain in gains.items()
    )
    return TableOutcome(table, keys, mean_gain(stock_us, own_us))


def _runner(table: ShippedTable, task: Task, ran_by: str) -> Runner:
    if ran_by == Runner.EXECUTOR:
        return Runner.EXECUTOR
    entry = table.entry(task)
    if entry is not None and entry.builtin is not None:
        return Runner.PLUGIN
    return Runner.PROFILE if table.bundle.profile else Runner.NCCL
