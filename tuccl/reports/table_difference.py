"""`TableDifference`: one table against another, key by key.

A key is an operation, a communicator shape and a size that was tuned; an entry for some of the
shape's communicators alone is a key of its own. A promise is the time that a
table states for it, with what a job runs. Times of two tables may be of two machines or two NCCLs,
so their ratio tells both changes together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lookup_tables.provenance import Provenance
from lookup_tables.table import Entry, Operation, Shape, Table
from tuccl.reports.choice_text import (
    OWN_CHOICE,
    UNDER_PROFILE,
    describe_builtin,
    describe_runner,
    describe_schedule,
)
from tuccl.reports.evidence import Evidence
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import gains_of, obstacle_to

_SAME = 1e-6
"""Relative difference up to which two times are the same: a bundle has 32 bits for them."""


@dataclass(frozen=True, slots=True, order=True)
class TunedCall:
    """A key of the comparison."""

    shape: Shape
    operation: Operation
    size_bytes: int
    placement: str = ""
    """GPUs of a communicator, for an entry of those like it alone; empty: wherever ranks sit."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A call of one table."""

    runs: str
    """Choice of a job, in words."""
    time_us: float | None
    """None: unknown, as NCCL's own choice under a profile is where only entries are known."""
    stock_us: float
    """Stock NCCL's time on the machine of this table."""
    provenance: Provenance | None
    """Origin of the times; None: the table has no entry, or does not say."""


class Change(StrEnum):
    """An aspect in which the promises of two tables differ."""

    RUNS = "runs"
    TIME = "time"
    PROVENANCE = "provenance"


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key of two tables; None on the side of a table that does not have it."""

    call: TunedCall
    first: Promise | None
    second: Promise | None

    @property
    def is_common(self) -> bool:
        """Whether both tables have the key."""
        return self.first is not None and self.second is not None

    @property
    def ratio(self) -> float | None:
        """Time under the first table over that under the second; None: one is not known."""
        before_us = None if self.first is None else self.first.time_us
        now_us = None if self.second is None else self.second.time_us
        return before_us / now_us if before_us and now_us else None

    @property
    def changes(self) -> tuple[Change, ...]:
        """Aspects that differ; empty where the key is the same, or one table lacks it."""
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
    def is_same(self) -> bool:
        """Whether both tables promise the same."""
        return self.is_common and not self.changes


@dataclass(frozen=True, slots=True)
class TableDifference:
    """The keys of two tables."""

    keys: tuple[KeyDifference, ...]

    @property
    def common(self) -> int:
        """Number of keys that both tables have."""
        return sum(key.is_common for key in self.keys)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ratios of the common keys whose times are known."""
        return tuple(ratio for key in self.keys if (ratio := key.ratio) is not None)

    @property
    def speedup(self) -> float | None:
        """Speedup of the second table over the first: geometric mean; None: no common keys."""
        ratios = self.ratios
        return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else None


def compare_tables(
    first: Mapping[TunedCall, Promise], second: Mapping[TunedCall, Promise]
) -> TableDifference:
    """Compare the promises of two tables."""
    return TableDifference(
        tuple(
            KeyDifference(call, first.get(call), second.get(call))
            for call in sorted(first.keys() | second.keys())
        )
    )


def promises_of_run(run: FinishedRun, whole: Shape) -> dict[TunedCall, Promise]:
    """Return the promises of a run, also for keys without an entry.

    Args:
        run: The run.
        whole: Shape of all GPUs, for reports of earlier releases, which name no shape.
    """
    found = {
        TunedCall(
            gain.key.shape or whole, Operation(gain.key.operation), gain.key.size_bytes
        ): Promise(
            describe_runner(gain, run.table),
            gain.time_us,
            gain.key.stock_us,
            None if gain.entry is None else gain.entry.provenance,
        )
        for gain in gains_of(run).keys
    }
    return found | _placed_promises(run.table)


def promises_of_entries(
    table: Table, evidence: Evidence, *, has_executor: bool
) -> dict[TunedCall, Promise]:
    """Return the promises of a table's entries, where nothing is known of other keys.

    Args:
        table: A table.
        evidence: Evidence behind its times.
        has_executor: Whether the executor lies beside it.
    """
    found = {
        TunedCall(entry.key.shape, entry.key.operation, entry.tuned_bytes): _promise(
            entry, table, evidence, has_executor=has_executor
        )
        for entry in table.entries
    }
    return found | _placed_promises(table)


def _placed_promises(table: Table) -> dict[TunedCall, Promise]:
    """Return the promises of entries for some communicators of a shape: settings of NCCL."""
    return {
        TunedCall(own.shape, entry.key.operation, entry.tuned_bytes, own.example): Promise(
            describe_builtin(entry), entry.time_us, entry.default_time_us, entry.provenance
        )
        for own in table.placements
        for entry in own.entries
    }


def _promise(entry: Entry, table: Table, evidence: Evidence, *, has_executor: bool) -> Promise:
    runs: str = OWN_CHOICE
    time_us: float | None = entry.default_time_us
    if table.profile:
        runs, time_us = UNDER_PROFILE, None
    if entry.builtin is not None and entry.builtin_time_us is not None:
        runs, time_us = describe_builtin(entry), entry.builtin_time_us
    obstacle = obstacle_to(entry, table, evidence, has_executor=has_executor)
    if entry.schedule is not None and obstacle is None:
        runs, time_us = describe_schedule(entry, table), entry.time_us
    return Promise(runs, time_us, entry.default_time_us, entry.provenance)
