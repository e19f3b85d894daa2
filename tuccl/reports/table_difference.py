"""`TableDifference`: one table against another, key by key.

A promise is the time that a table states for a key, with what a job runs. Times of two tables may
be of two machines or two NCCLs, so their ratio shows both changes together. They are of different
starts of the workers in any case, so a time differs only if the bounds tell the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lookup_tables.provenance import Provenance
from lookup_tables.table import Table
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import entry_in_job
from tuccl.reports.json_form import member
from tuccl.reports.keys import Gain, KeyFigures, TunedCall, Verdict
from tuccl.reports.tuning_result import TuningResult
from tuccl.search.statistics.estimators import geometric_mean
from tuccl.search.statistics.intervals import START_ERROR

if TYPE_CHECKING:
    import pandas as pd


class Change(StrEnum):
    """An aspect in which the promises of two tables differ."""

    RUNS = "runs"
    TIME = "time"
    PROVENANCE = "provenance"


@dataclass(frozen=True, slots=True)
class SideFigures:
    """A key under one table."""

    runs: str
    """The setting or schedule that a job runs, in words."""
    time_us: float | None
    """None: unknown, as NCCL's own choice under a profile is to a shipped directory."""
    stock_us: float
    """Stock NCCL's time on the machine of this table."""
    gain: Gain | None
    """Stock NCCL's time over the job's, with its bounds; None: the latter is unknown."""
    provenance: Provenance | None
    """Origin of the times; None: there is no entry, or it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffKey(TunedCall):
    """A key of two tables."""

    first: SideFigures | None
    """None: the table does not have the key."""
    second: SideFigures | None
    gain: Gain | None
    """Time under the first table over that under the second; None: one is not known."""

    @property
    def ratio(self) -> float | None:
        """The ratio of the times without bounds; None: one is not known."""
        return None if self.gain is None else self.gain.ratio

    @member
    def changes(self) -> tuple[Change, ...]:
        """Aspects that differ; empty if one table lacks the key."""
        if self.first is None or self.second is None:
            return ()
        # An unknown time may be the same.
        told_apart = self.gain is not None and self.gain.verdict is not Verdict.NOT_TOLD_APART
        found = {
            Change.RUNS: self.first.runs != self.second.runs,
            Change.TIME: told_apart,
            Change.PROVENANCE: self.first.provenance != self.second.provenance,
        }
        return tuple(change for change, differs in found.items() if differs)

    @property
    def is_common(self) -> bool:
        """Whether both tables have the key."""
        return self.first is not None and self.second is not None

    @property
    def is_same(self) -> bool:
        """Whether both tables promise the same."""
        return self.is_common and not self.changes


@dataclass(frozen=True, slots=True)
class DiffSide:
    """A table of `diff`."""

    place: str
    """The place that was given."""
    topology: str
    fingerprint: str
    nccl: str | None
    """Version of NCCL that was measured; None: none was, or it is unknown."""
    profile: Mapping[str, str]
    keys: int


@dataclass(frozen=True, slots=True)
class TableDifference:
    """`diff`: a second table against a first one."""

    first: DiffSide
    second: DiffSide
    keys: tuple[DiffKey, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each key, with the `ratio` of the times, NaN if one is unknown."""
        import pandas as pd  # noqa: PLC0415 - slow

        rows = [
            (key.operation.value, key.size_bytes, key.shape.ranks, key.shape.nodes,
             key.placement or "", key.first is not None, key.second is not None, key.ratio)
            for key in self.keys
        ]  # fmt: skip
        columns = ["operation", "size_bytes", "ranks", "nodes", "placement", "in_first"]
        frame = pd.DataFrame(rows, columns=[*columns, "in_second", "ratio"])
        return frame.astype({"ratio": "float64"})

    @member
    def common(self) -> int:
        """Number of keys that both tables have."""
        return sum(key.is_common for key in self.keys)

    @member
    def speedup(self) -> float | None:
        """Geometric mean of the ratios of the keys with known times; None: there are none."""
        return None if self.mean is None else self.mean.ratio

    @property
    def mean(self) -> Gain | None:
        """`speedup` with bounds; None if no key has a time in both tables.

        The bounds are as wide as if all keys erred alike, as a start shifts many keys together.
        """
        found = [key.gain for key in self.keys if key.gain is not None]
        if not found:
            return None
        bounds = zip(*((own.ratio, own.low, own.high) for own in found), strict=True)
        return Gain(*(geometric_mean([math.log(each) for each in own]) for own in bounds))

    @member
    def same(self) -> bool:
        """Whether machine, NCCL, profile and all keys are the same."""
        around = ((s.fingerprint, s.nccl, s.profile) for s in (self.first, self.second))
        return len({str(each) for each in around}) == 1 and all(key.is_same for key in self.keys)


def compare_keys(
    first: Sequence[KeyFigures], second: Sequence[KeyFigures], start_error: float = START_ERROR
) -> tuple[DiffKey, ...]:
    """Compare the keys of two tables.

    Args:
        first: Keys of the first table.
        second: Keys of the second one.
        start_error: Error of a ratio of two starts of the workers.
    """
    before, now = ({key.order: key for key in keys} for keys in (first, second))
    return tuple(
        _compared(before.get(order), now.get(order), start_error)
        for order in sorted({**before, **now})
    )


def keys_of_run(run: TuningResult) -> tuple[KeyFigures, ...]:
    """Return the keys of a run, also those without an entry."""
    return (*run.keys, *_placed_keys(run.table, run.times))


def keys_of_entries(
    table: Table, evidence: Evidence, *, has_executor: bool
) -> tuple[KeyFigures, ...]:
    """Return the keys of a table's entries, if nothing is known of other keys.

    Args:
        table: A table.
        evidence: Evidence behind its times.
        has_executor: Whether the executor lies beside it.
    """
    own = (entry_in_job(e, table, evidence, has_executor=has_executor) for e in table.entries)
    return (*own, *_placed_keys(table, evidence))


def _placed_keys(table: Table, evidence: Evidence) -> Iterator[KeyFigures]:
    """Yield the entries for some communicators of a shape: settings of NCCL."""
    for own in table.placements:
        for entry in own.entries:
            yield entry_in_job(entry, table, evidence, has_executor=False, placement=own.example)


def _compared(first: KeyFigures | None, second: KeyFigures | None, start_error: float) -> DiffKey:
    key = first or second
    if key is None:
        raise ValueError("a key of neither table")
    return DiffKey(
        operation=key.operation,
        size_bytes=key.size_bytes,
        shape=key.shape,
        placement=key.placement,
        first=_promise(first),
        second=_promise(second),
        gain=None if first is None or second is None else _gain(first, second, start_error),
    )


def _gain(first: KeyFigures, second: KeyFigures, start_error: float) -> Gain | None:
    """Return the first time over the second one, with bounds.

    The distances to the bounds of both gains over stock NCCL add as squares. The error between two
    starts is a bound and no standard error, so it adds linearly.
    """
    if not first.table_us or not second.table_us:
        return None
    ratio = first.table_us / second.table_us
    (slower, faster), (slower_now, faster_now) = _distances(first.gain), _distances(second.gain)
    low = math.exp(-start_error - math.hypot(faster, slower_now))
    high = math.exp(start_error + math.hypot(slower, faster_now))
    return Gain(ratio, ratio * low, ratio * high)


def _distances(gain: Gain | None) -> tuple[float, float]:
    """Return the distances of a gain's logarithm to its bounds, 0 where there is none."""
    if gain is None:
        return 0.0, 0.0
    below = math.log(gain.ratio / gain.low) if gain.low else 0.0
    return below, math.log(gain.high / gain.ratio) if gain.high else 0.0


def _promise(key: KeyFigures | None) -> SideFigures | None:
    if key is None:
        return None
    return SideFigures(key.runs, key.table_us, key.stock_us, key.gain, key.provenance)
