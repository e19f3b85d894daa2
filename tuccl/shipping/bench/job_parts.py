"""The parts of a table that a job is run with and without, to see what each does to it.

A part is what the table says about one operation of one communicator shape, or its process profile.
Calls are tuned one by one; in a job they compete with computation and with each other for
multiprocessors, memory and cores, so that a part that is faster alone may slow the job down.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lookup_tables.collective import Collective
from lookup_tables.table import Entry, SeenPlacement, Shape, Table
from tuccl.reports.json_form import member
from tuccl.reports.keys import Gain
from tuccl.search.statistics.looks import bonferroni
from tuccl.search.statistics.screening import Signs, effects
from tuccl.search.trials.shapes import shape_text
from tuccl.shipping.bench.job_figure import RunFigure
from tuccl.shipping.bench.own_job import JobBenchResult, JobRound, JobRun

MOST_FACTORS = 16
"""From so many operations of shapes on, a part is a whole shape: runs of a job cost minutes."""
ERROR = 0.1
"""Largest probability that any part is left out that does not slow the job down. It is larger than
that of an entry without a gain: without the part the job is as fast as with stock NCCL, with it
perhaps slower."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """A part of a table."""

    shape: Shape | None
    """Communicators of its entries; None: the process profile."""
    operation: Collective | None
    """None: all operations of the shape, or the process profile."""

    def __str__(self) -> str:
        """Name the part for people: `all_reduce, 2 ranks on 1 node(s)`."""
        if self.shape is None:
            return "process profile"
        operation = "all operations" if self.operation is None else self.operation.value
        return f"{operation}, {shape_text(self.shape)}"

    def holds(self, entry: Entry) -> bool:
        """Whether an entry is of this part."""
        key = entry.key
        return key.shape == self.shape and self.operation in {None, key.operation}


PROFILE = JobPart(None, None)


@dataclass(frozen=True, slots=True)
class PartEffect(JobPart):
    """A part of the table, and what it does to the job."""

    gain: Gain
    """The job's speed with the part over that without; the bounds of all parts hold together with
    90 %."""

    @member
    def left_out(self) -> bool:
        """Whether the job is slower with it, beyond the noise."""
        return self.gain.high is not None and self.gain.high < 1.0

    @property
    def part(self) -> JobPart:
        """The part alone."""
        return JobPart(self.shape, self.operation)


def job_parts(table: Table) -> tuple[JobPart, ...]:
    """Return the parts of a table in the order of its entries, the process profile last."""
    keys = [entry.key for entry in table.all_entries]
    found = [JobPart(*both) for both in dict.fromkeys((key.shape, key.operation) for key in keys)]
    if len(found) >= MOST_FACTORS:
        found = [JobPart(shape, None) for shape in dict.fromkeys(key.shape for key in keys)]
    return (*found, PROFILE) if table.profile else tuple(found)


def with_parts(table: Table, kept: Collection[JobPart]) -> Table:
    """Return a table with these parts alone, for jobs that do not learn.

    Schedules that no entry names are left out.
    """

    def is_kept(entry: Entry) -> bool:
        return any(part.holds(entry) for part in kept)

    entries = tuple(filter(is_kept, table.entries))
    placements = tuple(
        replace(each, entries=tuple(filter(is_kept, each.entries))) for each in table.placements
    )
    own = filter(is_kept, table.all_entries)
    named = {entry.schedule.schedule for entry in own if entry.schedule is not None}
    return replace(
        table,
        entries=entries,
        profile=table.profile if PROFILE in kept else {},
        settings=table.settings if PROFILE in kept else (),
        schedules=tuple(each for each in table.schedules if each.content_hash in named),
        placements=_of_shapes_with_entries(placements),
        runners_up=(),
    )


def _of_shapes_with_entries(placements: Sequence[SeenPlacement]) -> tuple[SeenPlacement, ...]:
    """Leave out the placements of a shape of which none has entries."""
    shapes = {own.shape for own in placements if own.entries}
    return tuple(own for own in placements if own.shape in shapes)


@dataclass(frozen=True, slots=True)
class PartRound:
    """A job with some parts of a table and with all others."""

    parts: tuple[int, ...]
    """Numbers of the first run's parts, from 0; the second run has the others."""
    first: JobRun
    second: JobRun

    def signs(self, count: int) -> Signs:
        """Return for each of so many parts 1 if it was in the first run, else -1."""
        return tuple(1 if number in self.parts else -1 for number in range(count))

    @property
    def as_job_round(self) -> JobRound:
        """The round if its first run had all parts, and so the second none."""
        return JobRound(without=self.second, with_table=self.first)

    def log_ratio(self, figure: RunFigure) -> float:
        """Return the logarithm of the speed of the first run over that of the second."""
        ratio = math.log(self.second.figure / self.first.figure)
        return -ratio if figure.higher_is_better else ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimResult(JobBenchResult):
    """`workload trim`: what each part of a table does to a job, and the job with what is left.

    Its rounds are without a table and with what is left; with the whole table if all or nothing is
    left.
    """

    parts: tuple[PartEffect, ...]
    part_rounds: tuple[PartRound, ...]
    shipped: Path | None
    """Directory that got what is left; None: nothing was written."""
    caveats: tuple[str, ...] = ()
    """Reasons not to rely on what was shipped."""

    @property
    def left_out(self) -> tuple[JobPart, ...]:
        """Parts with which the job is slower, beyond the noise."""
        return tuple(each.part for each in self.parts if each.left_out)

    @property
    def is_nothing_left(self) -> bool:
        """Whether every part is left out."""
        return len(self.left_out) == len(self.parts)

    @property
    def is_part(self) -> bool:
        """Whether some parts are left out, and some are not."""
        return bool(self.left_out) and not self.is_nothing_left


def parts_in(parts: Sequence[JobPart], signs: Signs, half: int) -> tuple[JobPart, ...]:
    """Return the parts of a run of a round: 1 is the first run, -1 the second."""
    return tuple(part for part, sign in zip(parts, signs, strict=True) if sign == half)


def part_effects(
    parts: Sequence[JobPart], rounds: Sequence[PartRound], figure: RunFigure
) -> tuple[PartEffect, ...]:
    """Return what each part does to the job; the bounds of all hold together."""
    signs = [each.signs(len(parts)) for each in rounds]
    ratios = [each.log_ratio(figure) for each in rounds]
    found = effects(signs, ratios, bonferroni(ERROR, len(parts)))
    return tuple(
        PartEffect(part.shape, part.operation, Gain(each.ratio, each.bounds.low, each.bounds.high))
        for part, each in zip(parts, found, strict=True)
    )
