"""The lines of a measurement log, and what they say together.

A line is a JSON object, to which the file adds a sum (`tuccl.workspace.measurement_file`). The
first names the format and what the measurements belong to. Then stands what took them (again where
a later process did), and a line for each measurement: its samples and what they cost, or why it
failed. NCCL's cost tables have lines of their own, and so have jobs that timed all keys with a
whole table loaded, or with stock NCCL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import accumulate
from math import isfinite
from operator import attrgetter
from typing import Any

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance, provenance_from_json, provenance_to_json
from lookup_tables.table import Shape
from tuccl.search.trials.backend import JobCall, Measured
from tuccl.search.trials.bill import Bill
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.timing import Timing, timing_from_json

FORMAT = "tuccl-measurements"
VERSION = 10

# `astuple` would copy each value, for each line.
_config_values = attrgetter(*(field.name for field in fields(Config)))
_shape_values = attrgetter(*(field.name for field in fields(Shape)))


@dataclass(frozen=True, slots=True)
class Source:
    """Backend that took the measurements."""

    provenance: Provenance
    timing: Timing


@dataclass(frozen=True, slots=True)
class Answer:
    """A request for samples of a configuration, and its answer."""

    asked: int
    """Samples requested in total, with those of earlier requests."""
    given: int
    """Samples it had then: fewer where it was too slow to be worth more."""
    seconds: float
    """Seconds of this request."""
    restart_s: float
    """`Backend.restart_s` afterwards."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The measurements of one configuration on one task."""

    task: Task
    config: Config
    samples_us: tuple[float, ...] = ()
    """Times per call, each the mean of one launch, in the order of measurement."""
    answers: tuple[Answer, ...] = ()
    """One for each request, in their order; empty if they are unknown."""
    failed: str = ""
    """Reason why no further samples can be taken; empty: they can."""
    failed_s: float = 0.0
    """Seconds of the failed attempt."""
    failed_check: bool = False
    """Whether it fails when its data is checked, too."""
    unasked_s: float | None = None
    """Seconds of all measurements if their requests are unknown; None: they are known."""

    @property
    def seconds(self) -> float:
        """Seconds of all measurements, the failed attempt included."""
        return self._paid_s[-1] + self.failed_s if self.unasked_s is None else self.unasked_s

    @property
    def _paid_s(self) -> list[float]:
        """Seconds before the first request, and up to the end of each."""
        return list(accumulate((answer.seconds for answer in self.answers), initial=0.0))

    def first(self, repeats: int) -> Measured | None:
        """The first samples with the cost of the measurements that brought them.

        Fewer where so many were asked for and not given; None where they never were.
        """
        for number, answer in enumerate(self.answers, 1):
            if answer.asked >= repeats:
                count = min(repeats, answer.given)
                paid_s = self._paid_s[number]
                return Measured(self.samples_us[:count], paid_s, answer.restart_s)
        return None

    def joined(self, fresh: Measured, asked: int) -> Recorded:
        """Append a further measurement, which was to bring it to `asked` samples.

        Raises:
            ValueError: The figures cannot be.
        """
        check_measured(fresh)
        samples = (*self.samples_us, *fresh.samples_us)
        if not len(self.samples_us) < len(samples) <= asked:
            raise ValueError(
                f"{len(fresh.samples_us)} samples where {asked - len(self.samples_us)} were asked"
            )
        answer = Answer(asked, len(samples), fresh.seconds, fresh.restart_s)
        return replace(self, samples_us=samples, answers=(*self.answers, answer))


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job that timed all keys."""

    table: str
    """Checksum of the bundle that it had loaded; empty: it was one of stock NCCL."""
    number: int
    """Its number among those of this table."""
    times_us: tuple[tuple[JobCall, float], ...]
    """Times by call; none where it failed."""
    seconds: float
    failed: str = ""
    """Reason why it did not run; empty: it did."""

    def check(self) -> None:
        """Find figures that cannot be.

        Raises:
            ValueError: A time is none, or seconds are no cost.
        """
        check_measured(Measured(tuple(time_us for _, time_us in self.times_us), self.seconds))


class Contents:
    """State of a log, built line by line."""

    def __init__(self) -> None:
        """An empty log."""
        self.source: Source | None = None
        self.profiles: list[ProcessProfile] = []
        """Profiles of the measurements in their order; runs of the same profile count once."""
        self.restart_s = 0.0
        """Value at the latest measurement."""
        self.cost_tables: dict[Task, CostTable | None] = {}
        """What NCCL allows, with its estimates; None if NCCL does not tell."""
        self.jobs: dict[tuple[str, int], RecordedJob] = {}
        """Jobs by their table and number."""
        self.bill = Bill[tuple[Task, Config] | tuple[str, int]]()
        """Machine time of all measurements, failed attempts included."""
        self._known: dict[tuple[Task, Config], Recorded] = {}

    def known(self, task: Task, config: Config) -> Recorded:
        """Record of a configuration so far; it may be empty."""
        return self._known.get((task, config)) or Recorded(task, config)

    def put(self, recorded: Recorded) -> None:
        """Replace a configuration's record."""
        self._known[recorded.task, recorded.config] = recorded
        self.bill.book((recorded.task, recorded.config), recorded.seconds)
        if recorded.answers and not recorded.failed:
            self.restart_s = recorded.answers[-1].restart_s
        config = recorded.config
        if config.needs_profile and self.profiles[-1:] != [config.profile]:
            self.profiles.append(config.profile)

    def put_job(self, job: RecordedJob) -> None:
        """Add a job."""
        self.jobs[job.table, job.number] = job
        self.bill.book((job.table, job.number), job.seconds)

    @property
    def all(self) -> tuple[Recorded, ...]:
        """Everything, in the order of first measurement."""
        return tuple(self._known.values())

    def take(self, line: bytes) -> None:
        """Take in a line.

        Raises:
            ValueError, KeyError, TypeError, OverflowError, RecursionError: It is damaged, or lines
                are missing.
        """
        values = json.loads(line)
        if "provenance" in values:
            timing = timing_from_json(values["timing"])
            self.source = Source(provenance_from_json(values["provenance"]), timing)
            return
        if "costs" in values:
            text = values["table"]
            table = None if text is None else CostTable.parse(text)
            self.cost_tables[_task(values["costs"])] = table
            return
        if "job" in values:
            self.put_job(_job(values))
            return
        known = self.known(_task(values["task"]), _config(values["config"]))
        if values["first"] != len(known.samples_us):
            raise ValueError("samples are missing before these")
        seconds = float(values["seconds"])
        if "failed" in values:
            check_measured(Measured((), seconds))
            check = values.get("check") is True
            reason = str(values["failed"])
            self.put(replace(known, failed=reason, failed_s=seconds, failed_check=check))
        else:
            samples = tuple(map(float, values["samples_us"]))
            asked = values.get("asked", len(known.samples_us) + len(samples))
            restart_s = float(values.get("restart_s", self.restart_s))
            self.put(known.joined(Measured(samples, seconds, restart_s), int(asked)))


def standing_alone(line: bytes, restart_s: float) -> tuple[Task, bytes] | None:
    """Return the task of a line, and the line without need of those before; None: it has none.

    Args:
        line: A line that is not damaged.
        restart_s: Seconds of a restart after it.
    """
    values = json.loads(line)
    subject = values.get("task") or values.get("costs")
    if subject is None:
        return None
    if "samples_us" in values:
        values["restart_s"] = restart_s
    return _task(subject), _line(values)


def check_measured(measured: Measured) -> None:
    """Find figures that cannot be.

    Raises:
        ValueError: A sample is no time, or seconds are no cost.
    """
    for sample in measured.samples_us:
        if not (isfinite(sample) and sample > 0.0):
            raise ValueError(f"a sample of {sample} us is not a time")
    for seconds in (measured.seconds, measured.restart_s):
        if not (isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"{seconds} seconds is not a cost")


def header_line(identity: str) -> bytes:
    """First line of a log."""
    return _line({"format": FORMAT, "version": VERSION, "identity": identity})


def source_line(source: Source) -> bytes:
    """Line that names the backend of all later lines."""
    provenance = provenance_to_json(source.provenance)
    return _line({"provenance": provenance, "timing": asdict(source.timing)})


def samples_line(known: Recorded, fresh: Measured, asked: int, restart_s: float) -> bytes:
    """Line with further samples of a configuration, up to `asked` in total.

    It has the seconds of a restart where they differ from `restart_s`.
    """
    values = {**_subject(known), "samples_us": fresh.samples_us, "seconds": fresh.seconds}
    if fresh.restart_s != restart_s:
        values["restart_s"] = fresh.restart_s
    if len(known.samples_us) + len(fresh.samples_us) < asked:
        values["asked"] = asked
    return _line(values)


def failure_line(known: Recorded, reason: str, seconds: float, *, check: bool = False) -> bytes:
    """Line for a configuration that can no longer be measured; `check`: its data was checked."""
    checked = {"check": True} if check else {}
    return _line({**_subject(known), "failed": reason, "seconds": seconds, **checked})


def table_line(task: Task, table: CostTable | None) -> bytes:
    """Line for NCCL's cost table of a task."""
    text = None if table is None else str(table)
    return _line({"costs": _task_values(task), "table": text})


def job_line(job: RecordedJob) -> bytes:
    """Line for a job that timed all keys."""
    return _line(
        {
            "job": job.table,
            "number": job.number,
            "keys": [
                [*_task_values(call.task), call.computation_us, call.in_windows]
                for call, _ in job.times_us
            ],
            "us": [time_us for _, time_us in job.times_us],
            "seconds": job.seconds,
            **({"failed": job.failed} if job.failed else {}),
        }
    )


def _job(values: dict[str, Any]) -> RecordedJob:
    job = RecordedJob(
        str(values["job"]),
        int(values["number"]),
        tuple(zip(map(_job_call, values["keys"]), map(float, values["us"]), strict=True)),
        float(values["seconds"]),
        str(values.get("failed", "")),
    )
    job.check()
    return job


def _job_call(values: Sequence[Any]) -> JobCall:
    *task, computation_us, in_windows = values
    return JobCall(_task(task), float(computation_us), bool(in_windows))


def _subject(known: Recorded) -> dict[str, object]:
    *config, settings, chunk_bytes = _config_values(known.config)
    return {
        "task": _task_values(known.task),
        "config": [*config, chunk_bytes, *settings],
        "first": len(known.samples_us),
    }


def _task_values(task: Task) -> list[object]:
    return [task.operation, task.size_bytes, *_shape_values(task.shape), task.placement.text]


def _task(values: Sequence[Any]) -> Task:
    operation, size_bytes, ranks, nodes, ranks_per_node, placement = values
    shape = Shape(int(ranks), int(nodes), int(ranks_per_node))
    if shape.fault:
        raise ValueError(shape.fault)
    return Task(Collective.named(operation), int(size_bytes), shape, Placement.parse(placement))


def _config(values: Sequence[Any]) -> Config:
    algorithm, protocol, *numbers = values[:7]
    nchannels, nthreads, buffer_bytes, min_nchannels, chunk_bytes = map(int, numbers)
    return Config(
        str(algorithm),
        str(protocol),
        nchannels,
        nthreads,
        buffer_bytes,
        min_nchannels,
        tuple((str(name), str(value)) for name, value in values[7:]),
        chunk_bytes,
    )


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
