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

from lookup_tables.table import Entry, Operation, SeenPlacement, Shape, Table
from tuccl.search.statistics.looks import bonferroni
from tuccl.search.statistics.screening import Effect, Signs, effects
from tuccl.search.trials.shapes import shape_text
from tuccl.shipping.bench.job_figure import Figure
from tuccl.shipping.bench.own_job import JobOutcome, JobRound, JobRun

MOST_FACTORS = 16
"""From so many operations of shapes on, a part is a whole shape: runs of a job cost minutes."""
ERROR = 0.1
"""Largest probability that any part is left out that does not slow the job down. It is larger than
that of an entry without a gain: without the part the job is as fast as with stock NCCL, with it
perhaps slower."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a table."""

    shape: Shape | None
    """Communicators of its entries; None: the process profile."""
    operation: Operation | None
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


PROFILE = Part(None, None)


@dataclass(frozen=True, slots=True)
class PartEffect:
    """The effect of a part on a job."""

    part: Part
    effect: Effect

    @property
    def is_slower(self) -> bool:
        """Whether the job is slower with it, beyond the noise."""
        return self.effect.bounds.high < 1.0


def job_parts(table: Table) -> tuple[Part, ...]:
    """Return the parts of a table in the order of its entries, the process profile last."""
    keys = [entry.key for entry in table.all_entries]
    found = [Part(*both) for both in dict.fromkeys((key.shape, key.operation) for key in keys)]
    if len(found) >= MOST_FACTORS:
        found = [Part(shape, None) for shape in dict.fromkeys(key.shape for key in keys)]
    return (*found, PROFILE) if table.profile else tuple(found)


def with_parts(table: Table, kept: Collection[Part]) -> Table:
    """Return a table with these parts alone; schedules that no entry names are left out."""

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
        schedules=tuple(each for each in table.schedules if each.content_hash in named),
        placements=_of_shapes_with_entries(placements),
    )


def _of_shapes_with_entries(placements: Sequence[SeenPlacement]) -> tuple[SeenPlacement, ...]:
    """Leave out the placements of a shape of which none has entries."""
    shapes = {own.shape for own in placements if own.entries}
    return tuple(own for own in placements if own.shape in shapes)


@dataclass(frozen=True, slots=True)
class PartRound:
    """The job with some parts of a table and with all others."""

    signs: Signs
    """For each part 1 where it was in the first run, else -1."""
    first: JobRun
    second: JobRun

    @property
    def as_job_round(self) -> JobRound:
        """The round where its first run had all parts, and so the second none."""
        return JobRound(without=self.second, with_table=self.first)

    def log_ratio(self, figure: Figure) -> float:
        """Return the logarithm of the speed of the first run over that of the second."""
        ratio = math.log(self.second.figure / self.first.figure)
        return -ratio if figure.higher_is_better else ratio


@dataclass(frozen=True, slots=True)
class Trimming:
    """The result of `tuccl workload trim`."""

    rounds: tuple[PartRound, ...]
    parts: tuple[PartEffect, ...]
    outcome: JobOutcome
    """The rest against stock NCCL; the whole table, where every part or none is left out."""
    shipped: Path | None
    """Directory that got what is left; None: nothing was written."""
    caveats: tuple[str, ...] = ()
    """Reasons not to rely on what was shipped."""

    @property
    def left_out(self) -> tuple[Part, ...]:
        """Parts with which the job is slower, beyond the noise."""
        return tuple(each.part for each in self.parts if each.is_slower)

    @property
    def is_nothing_left(self) -> bool:
        """Whether every part is left out."""
        return len(self.left_out) == len(self.parts)

    @property
    def is_part(self) -> bool:
        """Whether some parts are left out, and some are not."""
        return bool(self.left_out) and not self.is_nothing_left


def parts_in(parts: Sequence[Part], signs: Signs, half: int) -> tuple[Part, ...]:
    """Return the parts of a run of a round: 1 is the first run, -1 the second."""
    return tuple(part for part, sign in zip(parts, signs, strict=True) if sign == half)


def part_effects(
    parts: Sequence[Part], rounds: Sequence[PartRound], figure: Figure
) -> tuple[PartEffect, ...]:
    """Return what each part does to the job; the bounds of all hold together."""
    signs, ratios = [each.signs for each in rounds], [each.log_ratio(figure) for each in rounds]
    found = effects(signs, ratios, bonferroni(ERROR, len(parts)))
    return tuple(PartEffect(*both) for both in zip(parts, found, strict=True))
