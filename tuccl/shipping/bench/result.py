"""`BenchResult`: each table's gain over stock NCCL, key by key, and its findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

from lookup_tables.bundles.bundle import BundleEntry
from lookup_tables.table import Shape
from tuccl.measuring.engines.job_processes import STOCK
from tuccl.reports.choice_text import runs_text
from tuccl.reports.json_form import member
from tuccl.reports.keys import (
    Gain,
    KeyFigures,
    Runner,
    TunedCall,
    frame_of,
    geometric_mean_of,
)
from tuccl.reports.ratios import MeasuredGain, key_gains, mean_gain
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Computation, Timing
from tuccl.shipping.bench.bandwidths import algbw_gb_per_s, busbw_gb_per_s, element_count
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.rounds import BenchTimes
from tuccl.shipping.bench.step import BenchedStep, step_outcome
from tuccl.workloads.step_calls import StepCalls

if TYPE_CHECKING:
    import pandas as pd

_ELEMENT_BYTES = {"float16": 2}
_FAR_BELOW = 0.5
"""Share of a key's median gain below which a round's is far off: noise of TCP is 15 %."""


class Shortfall(StrEnum):
    """A shortfall of a key, beyond the noise."""

    SLOWER_THAN_STOCK = "slower_than_stock"
    SLOWER_THAN_PROMISED = "slower_than_promised"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchedKey(KeyFigures):
    """A key under a table; times are geometric means over the rounds."""

    table_us: float
    gain: MeasuredGain
    """Gain of the table over stock NCCL; the bounds of all keys hold together at 95 %."""
    stock_rounds_us: tuple[float, ...]
    """Stock NCCL's time in each round, which has processes of its own."""
    table_rounds_us: tuple[float, ...]
    count: int
    """Number of elements, as passed to NCCL's function."""
    redop: str
    promised: Gain | None
    """The gain that the table states, without bounds if its choice was not compared with stock
    NCCL; None: it states none for this size."""
    left_by_executor: bool
    """Whether NCCL runs it although the executor is loaded and the table has a schedule."""

    @member
    def stock_algbw_gb_per_s(self) -> float:
        """Algorithm bandwidth of stock NCCL, as nccl-tests derives it."""
        return algbw_gb_per_s(self.task, self.stock_us)

    @member
    def stock_busbw_gb_per_s(self) -> float:
        """Bus bandwidth of stock NCCL, likewise."""
        return busbw_gb_per_s(self.task, self.stock_us)

    @member
    def table_algbw_gb_per_s(self) -> float:
        """Algorithm bandwidth with the table."""
        return algbw_gb_per_s(self.task, self.table_us)

    @member
    def table_busbw_gb_per_s(self) -> float:
        """Bus bandwidth with the table."""
        return busbw_gb_per_s(self.task, self.table_us)

    @member
    def finding(self) -> Shortfall | None:
        """The shortfall beyond the noise, if there is one."""
        if self.gain.high < 1.0:
            return Shortfall.SLOWER_THAN_STOCK
        return Shortfall.SLOWER_THAN_PROMISED if self.gain.falls_short(self.promised) else None

    @property
    def round_gains(self) -> tuple[float, ...]:
        """Gain in each round."""
        pairs = zip(self.stock_rounds_us, self.table_rounds_us, strict=True)
        return tuple(stock_us / table_us for stock_us, table_us in pairs)

    @property
    def has_slow_start(self) -> bool:
        """Whether it was slower than stock NCCL in a round, by far for this key."""
        gains = self.round_gains
        return min(gains) < 1.0 and min(gains) < _FAR_BELOW * median(gains)


@dataclass(frozen=True, slots=True)
class BenchedTable:
    """A table against stock NCCL."""

    place: str
    """The directory that was given."""
    bundle_crc: str
    profile: Mapping[str, str]
    executor: bool
    """Whether the executor was loaded."""
    keys: tuple[BenchedKey, ...]
    mean: MeasuredGain
    """Geometric mean over all keys."""
    step: BenchedStep | None = None
    """The step of a workload; None: none was given."""
    is_baseline: bool = False
    """Whether it is a tuner's file, whose losses are no findings."""

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each key; see `frame_of`."""
        return frame_of(
            self.keys,
            place=[self.place] * len(self.keys),
            promised=[None if key.promised is None else key.promised.ratio for key in self.keys],
            finding=[key.finding for key in self.keys],
        )

    @property
    def promised(self) -> tuple[int, float, float] | None:
        """Number of keys with a stated gain, and their geometric mean gains, stated and measured.

        None if the table states none.
        """
        pairs = self.frame[["promised", "gain"]].astype("float64").dropna()
        if pairs.empty:
            return None
        return len(pairs), geometric_mean_of(pairs["promised"]), geometric_mean_of(pairs["gain"])

    def with_finding(self, finding: Shortfall) -> list[BenchedKey]:
        """Return the keys with this finding."""
        return [key for key in self.keys if key.finding is finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedKey(TunedCall):
    """A key under the second table against the first."""

    gain: MeasuredGain


@dataclass(frozen=True, slots=True)
class TwoTables:
    """The second table against the first, in the same rounds."""

    keys: tuple[PairedKey, ...]
    mean: MeasuredGain


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions under which a bench timed its calls."""

    shape: Shape
    """Shape of the communicator of all GPUs."""
    data_type: str
    in_place: bool
    in_windows: bool
    """Whether its buffers were registered (ncclCommWindowRegister)."""
    graphs: bool
    computations: tuple[Computation, ...]
    """Computation beside calls while they were timed; empty: they were timed alone."""
    versions: str
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult(Conditions):
    """`bench`: tables against stock NCCL on this machine, from the same rounds."""

    tables: tuple[BenchedTable, ...]
    comparison: TwoTables | None
    """None if one table was given."""

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each key of each table, whose `place` names the table; see `frame_of`."""
        import pandas as pd  # noqa: PLC0415 - slow

        return pd.concat([table.frame for table in self.tables], ignore_index=True)

    @property
    def has_findings(self) -> bool:
        """Whether any key of a table has a finding."""
        tables = [table for table in self.tables if not table.is_baseline]
        return any(key.finding is not None for table in tables for key in table.keys)


def conditions_of(measured: BenchTimes, shape: Shape, timing: Timing) -> dict[str, Any]:
    """Return the members of `Conditions`."""
    return {
        "shape": shape,
        "data_type": timing.data_type,
        "in_place": timing.in_place,
        "in_windows": timing.in_windows,
        "graphs": timing.graph,
        "computations": timing.computations,
        "versions": measured.versions,
        "rounds": measured.rounds,
        "seconds": measured.seconds,
    }


def bench_result(
    measured: BenchTimes,
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
    comparison = None
    if len(tables) > 1:
        first_us, second_us = (measured.times_us[table.name] for table in tables[:2])
        gains = key_gains(first_us, second_us)
        compared = (PairedKey(**named(task, tables[0]), gain=gain) for task, gain in gains.items())
        comparison = TwoTables(tuple(compared), mean_gain(first_us, second_us))
    return BenchResult(
        **conditions_of(measured, shape, timing),
        tables=tuple(_benched(table, measured, timing, calls) for table in tables),
        comparison=comparison,
    )


def named(task: Task, table: ShippedTable) -> dict[str, Any]:
    """Return the members of `TunedCall`."""
    return {
        "operation": task.operation,
        "size_bytes": task.size_bytes,
        "shape": task.shape,
        "placement": table.example(task) or None,
    }


def _benched(
    table: ShippedTable, measured: BenchTimes, timing: Timing, calls: StepCalls | None
) -> BenchedTable:
    stock_us, own_us = measured.times_us[STOCK.name], measured.times_us[table.name]
    keys = []
    for task, gain in key_gains(stock_us, own_us).items():
        entry, stated = table.entry(task), table.stated(task)
        runner = _runner(table, entry, measured.runners[table.name][task])
        has_schedule = entry is not None and entry.schedule is not None
        keys.append(
            BenchedKey(
                **named(task, table),
                stock_us=geometric_mean(stock_us[task]),
                table_us=geometric_mean(own_us[task]),
                gain=gain,
                runner=runner,
                runs=runs_text(runner, entry, table.bundle),
                starts=measured.rounds,
                provenance=None if stated is None else stated.provenance,
                stock_rounds_us=tuple(stock_us[task]),
                table_rounds_us=tuple(own_us[task]),
                count=element_count(task, _ELEMENT_BYTES[timing.data_type]),
                redop="sum" if task.operation.reduces else "none",
                promised=None if stated is None else stated.gain,
                left_by_executor=table.has_executor
                and has_schedule
                and runner is not Runner.EXECUTOR,
            )
        )
    return BenchedTable(
        place=table.name,
        bundle_crc=f"{table.bundle.crc:08x}",
        profile=dict(table.bundle.profile),
        executor=table.has_executor,
        keys=tuple(keys),
        mean=mean_gain(stock_us, own_us),
        step=None if calls is None else step_outcome(calls, table, stock_us, own_us),
        is_baseline=table.is_baseline,
    )


def _runner(table: ShippedTable, entry: BundleEntry | None, ran_by: str) -> Runner:
    if ran_by == Runner.EXECUTOR:
        return Runner.EXECUTOR
    if entry is not None and entry.builtin is not None:
        return Runner.PLUGIN
    return Runner.PROFILE if table.bundle.profile else Runner.NCCL
