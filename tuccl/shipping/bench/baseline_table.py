"""A tuner's CSV or library as a contender of a bench: a table of its choices for the timed keys.

TuCCL's plugin answers from it. The tuner itself would choose the same, except where NCCL rules a
row's choice out on the machine: it goes on to its next row there, and the plugin leaves the call to
NCCL. NCCL's example gives one channel to calls without a row; here they are left to NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.table import BuiltinConfig, Entry, Key, Table
from tuccl.errors import UsageError
from tuccl.measuring.engines.nccl_workers import job_variables
from tuccl.measuring.engines.tuner_library import ask_library, is_library
from tuccl.quantities import count_of
from tuccl.search.trials.backend import STOCK_PROFILE, JobTable
from tuccl.search.trials.baseline import Baseline, read_baseline
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import ShippedTable

_UNKNOWN_US = 1.0
"""Times of entries, which a bundle has and nobody reads."""


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """A tuner's file in a bench."""

    path: Path
    baseline: Baseline

    @classmethod
    def read(cls, path: Path) -> BaselineFile:
        """Read a CSV; a library has no rows until it is asked.

        Raises:
            InputFileError: It cannot be read, or a line is no row.
        """
        return cls(path, Baseline(path.name, ()) if is_library(path) else read_baseline(path))

    def for_keys(self, tasks: Sequence[Task]) -> BaselineFile:
        """Return the file with the choices of a library for these keys.

        Raises:
            InputFileError: The library cannot be asked, or chooses nothing.
        """
        return self if self.baseline.rows else replace(self, baseline=ask_library(self.path, tasks))


def counts_as_registered(timing: Timing, environment: Mapping[str, str]) -> bool:
    """Whether NCCL tells a tuner that the buffers of calls are registered.

    It does so of calls that a CUDA graph captures, unless NCCL_GRAPH_REGISTER is 0 (NCCL 2.24 to
    2.31, `regBuff` in `src/enqueue.cc`, later in `src/tuning`).
    """
    return timing.graph and environment.get("NCCL_GRAPH_REGISTER", "1") != "0"


def baseline_table(
    file: BaselineFile, tasks: Sequence[Task], beside: ShippedTable, *, registered: bool
) -> ShippedTable:
    """Return a tuner's file as a table for these keys.

    Args:
        file: The file.
        tasks: The keys that are timed.
        beside: A table of the machine.
        registered: Whether the buffers of their calls count as registered.

    Raises:
        UsageError: No row is for any of the keys.
        HostError: This installation has no plugin.
    """
    machine, name = beside.bundle, str(file.path)
    sizes = {(task.shape, task.operation.value, task.size_bytes): task for task in tasks}
    entries: list[Entry] = []
    for _, of_operation in groupby(sorted(sizes), key=lambda key: key[:2]):
        from_bytes = 0
        for task in (sizes[key] for key in of_operation):
            row = file.baseline.decisive(task, registered=registered)
            if row is not None:
                # A call has whole elements, and so up to some bytes less than its key.
                least = max(from_bytes, task.called_bytes)
                entries.append(_entry(task, least, row.setting(task), machine.fingerprint))
            from_bytes = task.size_bytes + 1
    if not entries:
        raise UsageError(f"--baseline {name}: no row is for a key that is timed: name another file")
    data = bundle_bytes(Table(machine.topology_name, machine.fingerprint, (), tuple(entries)))
    loaded = JobTable(f"{bundle_crc(data):08x}", data, STOCK_PROFILE, {}, loads_executor=False)
    return ShippedTable(
        name,
        job_variables(loaded, None),
        file.path,
        read_bundle(data, name),
        None,
        is_baseline=True,
    )


def _entry(task: Task, least_bytes: int, setting: BuiltinConfig, fingerprint: str) -> Entry:
    return Entry(
        Key(task.operation, least_bytes, task.size_bytes, task.shape, fingerprint),
        tuned_bytes=task.size_bytes,
        builtin=setting,
        schedule=None,
        time_us=_UNKNOWN_US,
        builtin_time_us=_UNKNOWN_US,
        default_time_us=_UNKNOWN_US,
        samples=0,
        spread=0.0,
        tuned_at="",
    )


def baseline_notes(file: BaselineFile, tasks: Sequence[Task], *, registered: bool) -> Iterator[str]:
    """Yield notes on the keys that a tuner's file has no row for, and on rows by registration."""
    baseline, keys = file.baseline, count_of(len(tasks), "key")
    without = sum(baseline.decisive(task, registered=registered) is None for task in tasks)
    if without:
        yield f"{baseline.name} has no choice for {without} of {keys}, which are left to NCCL"
    if any(row.registered is not None for task in tasks for row in baseline.rows_of(task)):
        yield (
            f"{baseline.name} has choices by regBuff: those for {int(registered)} are taken, which "
            "is what NCCL tells a tuner of calls that are timed so"
        )
