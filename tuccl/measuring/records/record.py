"""`Record`: measurements of one machine, sample by sample, with their conditions.

A row is one configuration on one operation, size and shape of communicators. The samples stay in
the order of measurement, and a failed configuration keeps its reason, so that a replay meets the
same failures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import isfinite, nan
from statistics import median
from typing import TYPE_CHECKING

from lookup_tables.provenance import Provenance
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation, Shape
from probes.topology.graph import Topology
from tuccl.measuring.records.recorded_run import RecordedRun
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.timing import Timing

if TYPE_CHECKING:
    import pandas as pd

NOT_RECORDED = "not in the record"
"""Reason of a replay's failure for a configuration that its record lacks."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for samples that a row's configuration had, and its answer."""

    asked: int
    """Samples requested in total, with those of earlier requests."""
    given: int
    """Samples it had then: fewer where it was too slow to be worth more."""
    seconds: float
    """Duration of this request."""
    restart_s: float
    """`Backend.restart_s` afterwards."""


@dataclass(frozen=True, slots=True)
class Row:
    """The measurements of one configuration on one task."""

    task: Task
    config: Config
    samples_us: tuple[float, ...]
    """Times per call, each the mean of one launch, in the order of measurement."""
    seconds: float
    """Duration of the measurement, failed attempts included."""
    failed: str = ""
    """Reason why measuring ended early; empty: it did not."""
    failed_check: bool = True
    """Whether a failed configuration fails when its data is checked, too."""
    failed_s: float | None = None
    """Duration of the failed attempt; None: it did not fail, or this is unknown."""
    requests: tuple[Request, ...] = ()
    """Requests in their order; empty: unknown."""

    @property
    def operation(self) -> Operation:
        """The operation."""
        return self.task.operation

    @property
    def size_bytes(self) -> int:
        """Size as nccl-tests counts it."""
        return self.task.size_bytes

    @property
    def order(self) -> tuple[Shape, str, int, str, Config]:
        """Unique sort key of the rows of a record."""
        task = self.task
        placement = task.placement.text
        return task.shape, task.operation.value, task.size_bytes, placement, self.config


@dataclass(frozen=True)
class Record:
    """Measurements of one machine by one backend."""

    topology: Topology
    """The machine."""
    shape: Shape
    """Shape of the communicator of all GPUs."""
    provenance: Provenance
    """Backend and versions that measured."""
    timing: Timing
    rows: tuple[Row, ...]
    """Ascending by `Row.order`."""
    run: str = ""
    """Identity of the recorded run; empty: unknown. No figure depends on it."""
    of_run: RecordedRun = field(default_factory=RecordedRun)
    """The recorded run's keys, schedules and search, as far as they are known."""

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the topology."""
        return self.topology.fingerprint()

    @cached_property
    def digest(self) -> str:
        """16 hex digits over everything that a search reads from the record."""
        text = self.provenance.describe()
        read = (self.fingerprint, self.shape, text, self.timing, self.rows, self.of_run)
        return hashlib.blake2b(repr(read).encode(), digest_size=8).hexdigest()

    @cached_property
    def _by_task(self) -> dict[Task, dict[Config, Row]]:
        found: dict[Task, dict[Config, Row]] = {}
        for row in self.rows:
            found.setdefault(row.task, {})[row.config] = row
        return found

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the communicators that were tuned."""
        return tuple(named.shape for named in self.of_run.shapes) or (self.shape,)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Keys of the recorded run, ascending.

        Where it is not known, all operations and sizes with configurations to choose from.
        """
        keys = frozenset(self.of_run.keys)
        return tuple(
            task
            for task, rows in self._by_task.items()
            if task.placement == ANYWHERE
            and (task in keys if keys else any(not config.is_default for config in rows))
        )

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each configuration on a key, with its samples and their `median_us`.

        The median is NaN if the configuration failed before its first sample.
        """
        import pandas as pd  # noqa: PLC0415 - slow

        rows = [
            {
                **asdict(row.task.shape),
                "placement": row.task.placement.text,
                "operation": row.operation.value,
                "size_bytes": row.size_bytes,
                **asdict(row.config),
                "samples_us": row.samples_us,
                "median_us": median(row.samples_us) if row.samples_us else nan,
                "seconds": row.seconds,
                "failed": row.failed,
            }
            for row in self.rows
        ]
        return pd.DataFrame(rows)

    def configs(self, task: Task) -> tuple[Config, ...]:
        """Return the configurations tried on a task, failed ones included, ascending."""
        return tuple(self._by_task.get(task, {}))

    def row(self, task: Task, config: Config) -> Row | None:
        """Return the row of a configuration on a task; None when it was never tried."""
        return self._by_task.get(task, {}).get(config)


def make_record(
    topology: Topology,
    shape: Shape,
    provenance: Provenance,
    timing: Timing,
    rows: Sequence[Row],
    run: str = "",
    of_run: RecordedRun | None = None,
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
    described = RecordedRun() if of_run is None else of_run
    return Record(topology, shape, provenance, timing, tuple(ordered), run, described)


def check_row(row: Row) -> None:
    """Check a row for values that cannot have been measured.

    Raises:
        ValueError: the row and its fault.
    """
    config = row.config
    for sample in row.samples_us:
        if not (isfinite(sample) and sample > 0.0):
            raise ValueError(f"{describe_row(row)}: a sample of {sample} us is no time")
    costs = [row.seconds, row.failed_s or 0.0]
    costs += [cost for each in row.requests for cost in (each.seconds, each.restart_s)]
    for seconds in costs:
        if not (isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"{describe_row(row)}: {seconds} seconds is no cost")
    if not row.samples_us and not row.failed:
        raise ValueError(f"{describe_row(row)}: neither samples nor a reason for their absence")
    if row.task.shape.fault:
        raise ValueError(f"{describe_row(row)}: {row.task.shape.fault}")
    if row.size_bytes < 1:
        raise ValueError(f"{describe_row(row)}: {row.size_bytes} is no size")
    counts = (config.nchannels, config.nthreads, config.buffer_bytes, config.min_nchannels)
    if min(counts) < 0:
        raise ValueError(f"{describe_row(row)}: {min(counts)} is no count")
    _check_requests(row)
    if config.is_default:
        if config.protocol or config.nchannels:
            raise ValueError(f"{describe_row(row)}: NCCL's own choice has no protocol or channels")
    else:
        _check_names(row)


def _check_requests(row: Row) -> None:
    before = 0
    for each in row.requests:
        if not before < each.given <= min(each.asked, len(row.samples_us)):
            raise ValueError(
                f"{describe_row(row)}: {each.given} samples of {each.asked} after {before}"
            )
        before = each.given
    if row.requests and before != len(row.samples_us):
        raise ValueError(f"{describe_row(row)}: {before} of {len(row.samples_us)} samples asked")


def _check_names(row: Row) -> None:
    config = row.config
    if not config.is_schedule and config.algorithm not in list(NcclAlgorithm):
        raise ValueError(f"{describe_row(row)}: no algorithm {config.algorithm!a:.40}")
    if config.protocol not in list(NcclProtocol):
        raise ValueError(f"{describe_row(row)}: no protocol {config.protocol!a:.40}")


def describe_row(row: Row) -> str:
    """Return the row's name for messages: `all_reduce 4096 ring LL ch2`."""
    return f"{row.operation.value} {row.size_bytes} {row.config.describe()}"
