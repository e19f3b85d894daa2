"""`Record`: measurements of one machine, sample by sample, with their conditions.

A row is one configuration on one operation, size and shape of communicators. The samples stay in
the order of measurement, and a failed configuration keeps its reason, so that a replay meets the
same failures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf, nan
from statistics import median
from typing import TYPE_CHECKING

from lookup_tables.provenance import Provenance
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from probes.topology.graph import Topology
from tuccl.errors import MeasurementError
from tuccl.measuring.records.recorded_run import RecordedRun
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Contents, Recorded

if TYPE_CHECKING:
    import pandas as pd

NOT_RECORDED = "not in the record"
"""Reason of a replay's failure for a configuration that its record lacks."""


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
    rows: tuple[Recorded, ...]
    """Ascending by shape, operation, size, placement and configuration."""
    run: str = ""
    """Identity of the recorded run; empty: unknown. No figure depends on it."""
    of_run: RecordedRun = RecordedRun()  # noqa: RUF009 - frozen
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
    def _by_task(self) -> dict[Task, dict[Config, Recorded]]:
        found: dict[Task, dict[Config, Recorded]] = {}
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
                "operation": row.task.operation.value,
                "size_bytes": row.task.size_bytes,
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

    def row(self, task: Task, config: Config) -> Recorded | None:
        """Return the row of a configuration on a task; None when it was never tried."""
        return self._by_task.get(task, {}).get(config)


def record_of(
    contents: Contents,
    topology: Topology,
    shape: Shape,
    run: str = "",
    of_run: RecordedRun = RecordedRun(),  # noqa: B008 - frozen
) -> Record:
    """Return the record of a log's measurements.

    Args:
        contents: Contents of the log.
        topology: The machine that was measured.
        shape: Shape of the communicator of all GPUs.
        run: Identity of the run whose log it is.
        of_run: Its keys, schedules and search, as far as they are known.

    Raises:
        MeasurementError: The log holds no measurement.
    """
    source = contents.source
    if source is None:
        raise MeasurementError(
            "the log of this run holds no measurement, so there is nothing to record: run the same "
            "command in another --workspace, which measures again"
        )
    # A configuration that a replay did not find was never measured.
    rows = [recorded for recorded in contents.all if recorded.failed != NOT_RECORDED]
    described = replace(
        of_run,
        cost_tables=tuple(contents.cost_tables.items()),
        jobs=tuple(job for job in contents.jobs.values() if job.failed != NOT_RECORDED),
    )
    return make_record(topology, shape, source.provenance, source.timing, rows, run, described)


def make_record(
    topology: Topology,
    shape: Shape,
    provenance: Provenance,
    timing: Timing,
    rows: Sequence[Recorded],
    run: str = "",
    of_run: RecordedRun = RecordedRun(),  # noqa: B008 - frozen
) -> Record:
    """Return a record with its rows in order.

    Raises:
        ValueError: Two rows are of the same configuration, or one cannot have been measured.
    """
    ordered = sorted(rows, key=order_of)
    for before, row in zip([None, *ordered], ordered, strict=False):
        fault = next(_faults(row), None)
        if before is not None and order_of(before) == order_of(row):
            fault = "it is there twice"
        if fault is not None:
            config = row.config.describe()
            raise ValueError(f"{row.task.operation} {row.task.size_bytes} {config}: {fault}")
    return Record(topology, shape, provenance, timing, tuple(ordered), run, of_run)


def order_of(row: Recorded) -> tuple[Shape, str, int, str, Config]:
    """Return the sort key of a row, which no other row of a record has."""
    task = row.task
    return task.shape, task.operation.value, task.size_bytes, task.placement.text, row.config


def _faults(row: Recorded) -> Iterator[str]:
    """Yield what shows that a row cannot have been measured."""
    if row.task.shape.fault:
        yield row.task.shape.fault
    if row.task.size_bytes < 1:
        yield f"{row.task.size_bytes} is not a size"
    yield from _faults_of_config(row.config)
    costs = [row.unasked_s or 0.0, row.failed_s]
    costs += [cost for each in row.answers for cost in (each.seconds, each.restart_s)]
    yield from (f"{us} us is not a time" for us in row.samples_us if not 0.0 < us < inf)
    yield from (f"{seconds} seconds is not a cost" for seconds in costs if not 0.0 <= seconds < inf)
    if not row.samples_us and not row.failed:
        yield "neither samples nor a reason for their absence"
    given = [0, *(each.given for each in row.answers)]
    for before, each in zip(given, row.answers, strict=False):
        if not before < each.given <= each.asked:
            yield f"{each.given} samples of {each.asked} after {before}"
    if row.answers and given[-1] != len(row.samples_us):
        yield f"{given[-1]} of {len(row.samples_us)} samples asked"


def _faults_of_config(config: Config) -> Iterator[str]:
    least = min(config.nchannels, config.nthreads, config.buffer_bytes, config.min_nchannels)
    if least < 0:
        yield f"{least} is not a count"
    if config.is_default:
        if config.protocol or config.nchannels or config.chunk_bytes:
            yield "NCCL's own choice has no protocol, channels or chunks"
        return
    if config.chunk_bytes < 0 or (config.chunk_bytes and config.is_schedule):
        yield f"chunks of {config.chunk_bytes} bytes"
    if not config.is_schedule and config.algorithm not in list(NcclAlgorithm):
        yield f"no algorithm {config.algorithm!a:.40}"
    if config.protocol not in list(NcclProtocol):
        yield f"no protocol {config.protocol!a:.40}"
