"""Contenders of a bench beside stock NCCL: tables as `tuccl ship` wrote them.

A table is used as a job uses it: the variables that its `tuccl.env` sets, plugin, bundle and, where
that file loads it, the executor. The gains that a table promises are in the Parquet file beside,
which may be missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundles.bundle import Bundle, BundleEntry, load_bundle
from lookup_tables.confirmation import Reference
from lookup_tables.lookup import lookup
from lookup_tables.program_header import executor_serves, runs_across_hosts
from lookup_tables.table import Entry, SeenPlacement, Table
from synthesizer.programs.compiler import check_programs
from tuccl.errors import HostError, TableError
from tuccl.measuring.engines.job_processes import Contender
from tuccl.reports.choice_text import runs_text
from tuccl.reports.keys import Gain, KeyFigures, Runner
from tuccl.reports.tuning_result import read_table_file
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE, without_executor
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import ANYWHERE
from tuccl.shipping.bench.placed_calls import placement_of, stated_entry
from tuccl.shipping.bench.surroundings import table_variables
from tuccl.shipping.shipped_directory import TABLE_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedKey(KeyFigures):
    """What a table states for a call; the gain has no bounds if it was not against stock NCCL."""

    table_us: float
    gain: Gain


@dataclass(frozen=True)
class ShippedTable(Contender):
    """A directory of `tuccl ship`."""

    directory: Path
    bundle: Bundle
    table: Table | None
    """Table of the Parquet file; None where no such file belongs to the bundle."""
    timed_alike: bool = True
    """Whether calls are timed here beside what they were when the gains that it states were."""
    is_baseline: bool = False
    """Whether it has the choices of a tuner's file, and no directory."""

    @property
    def has_executor(self) -> bool:
        """Whether the executor is loaded."""
        preloaded = self.variables.get(PRELOAD_VARIABLE, "")
        return without_executor(preloaded) != preloaded

    def entry(self, task: Task) -> BundleEntry | None:
        """Return the entry for a call; None where NCCL decides."""
        own = placement_of(self.table, task)
        placed = None if own is None else self._placed_entry(task, own)
        return placed or self.bundle.lookup(task.operation, task.size_bytes, task.shape)

    def example(self, task: Task) -> str:
        """Return GPUs of a communicator of a placed call; empty for all siblings of its shape."""
        own = None if task.placement == ANYWHERE else placement_of(self.table, task)
        return "" if own is None else own.example

    def _placed_entry(self, task: Task, own: SeenPlacement) -> BundleEntry | None:
        """Return the entry of these communicators in the bundle."""
        alike = [
            each
            for each in self.bundle.placements
            if (each.shape, each.operation) == (task.shape, task.operation)
        ]
        if own.number >= len(alike):
            return None  # The operation has no placed entries.
        return lookup(alike[own.number].entries, task.operation, task.size_bytes, task.shape)

    def stated(self, task: Task) -> StatedKey | None:
        """Return what the table states for calls that are timed so; None if it states nothing."""
        found = self.tuned_entry(task)
        if found is None or not self.timed_alike:
            return None
        runs_winner = self._runs_winner(found)
        time_us, stock_us = found.time_us, found.default_time_us
        if not runs_winner:
            time_us = found.builtin_time_us or 0.0
        if not time_us or not stock_us:
            return None
        ratio, shown = stock_us / time_us, found.confirmation
        gain = Gain(ratio, None, None)
        if runs_winner and (in_job := found.in_job) is not None:
            stock_us, time_us = in_job.stock_us, in_job.table_us
            gain = Gain(in_job.ratio, in_job.low, in_job.high)
        elif runs_winner and shown is not None and shown.reference is Reference.STOCK:
            low, high = (ratio * bound / shown.ratio for bound in (shown.low, shown.high))
            gain = Gain(ratio, low, high)
        runner = Runner.EXECUTOR if runs_winner and found.schedule else Runner.PLUGIN
        return StatedKey(
            operation=task.operation,
            size_bytes=task.size_bytes,
            shape=task.shape,
            placement=self.example(task) or None,
            stock_us=stock_us,
            table_us=time_us,
            gain=gain,
            runner=runner,
            runs=runs_text(runner, found, self.bundle),
            starts=None if shown is None else shown.starts,
            provenance=found.provenance,
        )

    def tuned_entry(self, task: Task) -> Entry | None:
        """Return the Parquet file's entry that was tuned at exactly this size."""
        used = self.entry(task)
        found = None if self.table is None else stated_entry(self.table, task)
        if found is None or used is None or found.tuned_bytes != task.size_bytes:
            return None
        # Times of a bundle have 32 bits. An entry with another time is of another table.
        is_same = math.isclose(used.default_time_us, found.default_time_us, rel_tol=1e-6)
        return found if is_same else None

    def _runs_winner(self, entry: Entry) -> bool:
        """Whether a job runs the entry's winner, rather than the built-in setting beside it."""
        if entry.schedule is None:
            return True
        shape = entry.key.shape
        served = shape.nodes == 1 or runs_across_hosts(
            self.bundle.schedules, entry.schedule.schedule
        )
        return self.has_executor and executor_serves(shape) and served


def read_shipped_table(directory: Path, name: str, *, with_executor: bool = True) -> ShippedTable:
    """Return the table in a directory of `tuccl ship`, which may have been moved.

    Args:
        directory: The directory, with its `tuccl.env`.
        name: Name of the table.
        with_executor: Load the executor where `tuccl.env` does.

    Raises:
        UsageError: A file is missing, or `tuccl.env` is not one of `tuccl ship`.
        TableError: The bundle is damaged.
    """
    variables = table_variables(directory, with_executor=with_executor)
    bundle = load_bundle(Path(variables[BUNDLE_VARIABLE]))
    check_programs(bundle.schedules, variables[BUNDLE_VARIABLE])
    return ShippedTable(name, variables, directory, bundle, _parquet_table(directory))


def _parquet_table(directory: Path) -> Table | None:
    path = directory / TABLE_NAME
    try:
        return read_table_file(path)
    except (OSError, TableError, HostError):
        return None
