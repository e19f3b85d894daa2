"""`TableDifference`: one table against another, key by key.

A promise is the time that a table states for a key, with what a job runs. Times of two tables may
be of two machines or two NCCLs, so their ratio shows both changes together.
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
from tuccl.reports.keys import KeyFigures, TunedCall, geometric_mean_of
from tuccl.reports.tuning_result import TuningResult

if TYPE_CHECKING:
    import pandas as pd

_SAME = 1e-6
"""Relative difference up to which two times are the same: a bundle has 32 bits for them."""


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
    provenance: Provenance | None
    """Origin of the times; None: there is no entry, or it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffKey(TunedCall):
    """A key of two tables."""

    first: SideFigures | None
    """None: the table does not have the key."""
    second: SideFigures | None

    @member
    def ratio(self) -> float | None:
        """Time under the first table over that under the second; None: one is not known."""
        before_us = None if self.first is None else self.first.time_us
        now_us = None if self.second is None else self.second.time_us
        return before_us / now_us if before_us and now_us else None

    @member
    def changes(self) -> tuple[Change, ...]:
        """Aspects that differ; empty if one table lacks the key."""
        if self.first is None or self.second is None:
            return ()
        times_us = (self.first.time_us or 0.0, self.second.time_us or 0.0)
        found = {
            Change.RUNS: self.first.runs != self.second.runs,
            Change.TIME: not math.isclose(*times_us, rel_tol=_SAME),
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
        ratios = self.frame["ratio"].dropna()
        return None if ratios.empty else geometric_mean_of(ratios)

    @member
    def same(self) -> bool:
        """Whether machine, NCCL, profile and all keys are the same."""
        around = ((s.fingerprint, s.nccl, s.profile) for s in (self.first, self.second))
        return len({str(each) for each in around}) == 1 and all(key.is_same for key in self.keys)


def compare_keys(first: Sequence[KeyFigures], second: Sequence[KeyFigures]) -> tuple[DiffKey, ...]:
    """Compare the keys of two tables."""
    sides = [{key.order: key for key in keys} for keys in (first, second)]
    return tuple(
        _compared(*(side.get(order) for side in sides))
        for order in sorted({**sides[0], **sides[1]})
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


def _compared(first: KeyFigures | None, second: KeyFigures | None) -> DiffKey:
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
    )


def _promise(key: KeyFigures | None) -> SideFigures | None:
    if key is None:
        return None
    return SideFigures(key.runs, key.table_us, key.stock_us, key.provenance)
