"""`Record`: measurements of one machine, sample by sample, with their conditions.

A row is one configuration on one operation and size. The samples stay in the order of measurement,
and a failed configuration keeps its reason, so that a replay meets the same failures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from tuccl.lookup_tables.provenance import Provenance
from tuccl.lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation, Shape
from tuccl.probes.topology.graph import Topology
from tuccl.trials.config import Config, Task
from tuccl.trials.timing import Timing

NOT_RECORDED = "not in the record"
"""Reason of a replay's failure for a configuration that its record lacks."""


@dataclass(frozen=True, slots=True)
class Row:
    """The measurements of one configuration on one operation and size."""

    operation: Operation
    size_bytes: int
    """As nccl-tests counts it."""
    config: Config
    samples_us: tuple[float, ...]
    """Times per call, each the mean of one launch, in the order of measurement."""
    seconds: float
    """Duration of the measurement, failed attempts included."""
    failed: str = ""
    """Reason why measuring ended early; empty: it did not."""

    @property
    def order(self) -> tuple[str, int, Config]:
        """Unique sort key of the rows of a record."""
        return self.operation.value, self.size_bytes, self.config


@dataclass(frozen=True)
class Record:
    """Measurements of one machine by one backend."""

    topology: Topology
    """The machine."""
    shape: Shape
    """Shape of the communicator."""
    provenance: Provenance
    """Backend and versions that measured."""
    timing: Timing
    rows: tuple[Row, ...]
    """Ascending by `Row.order`."""
    run: str = ""
    """Identity of the recorded run; empty: unknown. No figure depends on it."""

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the topology."""
        return self.topology.fingerprint()

    @cached_property
    def digest(self) -> str:
        """16 hex digits over everything that a search reads from the record."""
        found = hashlib.blake2b(digest_size=8)
        text = self.provenance.describe()  # As in earlier releases, whose runs continue.
        found.update(repr((self.fingerprint, self.shape, text, self.timing)).encode())
        for row in self.rows:
            found.update(repr(row).encode())
        return found.hexdigest()

    @cached_property
    def _by_task(self) -> dict[tuple[Operation, int], dict[Config, Row]]:
        found: dict[tuple[Operation, int], dict[Config, Row]] = {}
        for row in self.rows:
            found.setdefault((row.operation, row.size_bytes), {})[row.config] = row
        return found

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Operations and sizes with configurations to choose from, ascending."""
        return tuple(
            Task(operation, size_bytes, self.shape)
            for (operation, size_bytes), rows in self._by_task.items()
            if any(not config.is_default for config in rows)
        )

    def configs(self, task: Task) -> tuple[Config, ...]:
        """Return the configurations tried on a task, failed ones included, ascending."""
        return tuple(self._rows_of(task))

    def row(self, task: Task, config: Config) -> Row | None:
        """Return the row of a configuration on a task; None when it was never tried."""
        return self._rows_of(task).get(config)

    def _rows_of(self, task: Task) -> dict[Config, Row]:
        if task.shape != self.shape:
            return {}
        return self._by_task.get((task.operation, task.size_bytes), {})


def make_record(
    topology: Topology,
    shape: Shape,
    provenance: Provenance,
    timing: Timing,
    rows: Sequence[Row],
    run: str = "",
) -> Record:
    """Return a record with its rows in order.

    Raises:
        ValueError: two rows are of the same configuration, or one breaks a rule of `check_row`.
    """
    ordered = sorted(rows, key=lambda row: row.order)
    for before, row in zip([None, *ordered], ordered, strict=False):
        check_row(row)
        if before is not None and before.order == row.order:
            raise ValueError(f"{describe_row(row)} stands there twice")
    return Record(topology, shape, provenance, timing, tuple(ordered), run)


def check_row(row: Row) -> None:
    """Check a row for values that cannot have been measured.

    Raises:
        ValueError: the row and its fault.
    """
    config = row.config
    for sample in row.samples_us:
        if not (isfinite(sample) and sample > 0.0):
            raise ValueError(f"{describe_row(row)}: a sample of {sample} us is no time")
    if not (isfinite(row.seconds) and row.seconds >= 0.0):
        raise ValueError(f"{describe_row(row)}: {row.seconds} seconds is no cost")
    if not row.samples_us and not row.failed:
        raise ValueError(f"{describe_row(row)}: neither samples nor a reason for their absence")
    if row.size_bytes < 1:
        raise ValueError(f"{describe_row(row)}: {row.size_bytes} is no size")
    counts = (config.nchannels, config.nthreads, config.buffer_bytes, config.min_nchannels)
    if min(counts) < 0:
        raise ValueError(f"{describe_row(row)}: {min(counts)} is no count")
    if config.is_default:
        if config.protocol or config.nchannels:
            raise ValueError(f"{describe_row(row)}: NCCL's own choice has no protocol or channels")
    else:
        _check_names(row)


def _check_names(row: Row) -> None:
    config = row.config
    if not config.is_schedule and config.algorithm not in list(NcclAlgorithm):
        raise ValueError(f"{describe_row(row)}: no algorithm {config.algorithm!a:.40}")
    if config.protocol not in list(NcclProtocol):
        raise ValueError(f"{describe_row(row)}: no protocol {config.protocol!a:.40}")


def describe_row(row: Row) -> str:
    """Return the row's name for messages: `all_reduce 4096 ring LL ch2`."""
    return f"{row.operation.value} {row.size_bytes} {row.config.describe()}"
