"""Figures of the keys of a table: what stock NCCL and a job take, with the evidence for it.

A shipped directory has only the keys with an entry, and no times under the process profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import quantiles
from typing import TypeVar

from lookup_tables.collective import Collective
from lookup_tables.table import Entry, Shape
from sketches.candidates import whole_machine
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from tuccl.errors import ScheduleError, UsageError
from tuccl.models.siblings import SiblingMachines
from tuccl.quantities import count_of, format_size
from tuccl.reports.choice_text import describe_schedule
from tuccl.reports.decision_sentence import ratio_text
from tuccl.reports.explanation import reason
from tuccl.reports.job_gains import (
    JobGains,
    KeyGain,
    Obstacle,
    entry_in_job,
    obstacle_to,
)
from tuccl.reports.keys import Runner, TunedCall
from tuccl.reports.report import ComparisonReport
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.shipping.bench.bandwidths import busbw_gb_per_s
from tuccl.views.page.place import ReportedTable
from tuccl.workspace.measurement_lines import Contents

_MOST_BOUNDED_RANKS = 64
"""Most ranks for which a bound is computed: beyond, the linear program takes long."""
_UNINFORMATIVE = 100.0
"""A bound that differs from its ratio by this factor is left out."""
_LEAST_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A time with its interval, and the bus bandwidth that it means."""

    time_us: float
    low_us: float | None
    high_us: float | None
    busbw_gb_per_s: float


@dataclass(frozen=True, slots=True)
class ProfileGain:
    """Stock NCCL's time over that of NCCL's own choice under the process profile."""

    ratio: float
    low: float | None
    high: float | None
    starts: int | None
    """Starts of each in turn; without it single starts at different times, which give no bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKey(TunedCall):
    """A key with its name on the page, and stock NCCL's time."""

    shape_name: str = ""
    """`whole`, `node`, `rail` or `pairs`, or else the shape in words; empty in a table of one."""
    stock: TimedCall
    """Its interval is between the quartiles of its samples, if the place has them."""
    obstacle: Obstacle | None = None
    """Why a job here does not run the schedule that won."""

    @property
    def curve(self) -> str:
        """Operation, with the shape if the table has several: `node all_reduce`.

        An entry by where ranks sit names GPUs as well: `all_reduce, like n0/gpu0 and n0/gpu3`.
        """
        like = f", like {self.placement}" if self.placement else ""
        return f"{self.shape_name} {self.operation.value}{like}".strip()

    @property
    def name(self) -> str:
        """Name in a table: `node all_reduce 4K`."""
        return f"{self.shape_name} {self.operation.value} {format_size(self.size_bytes)}".strip()

    @property
    def communicator(self) -> str:
        """The communicator: `node, 8 ranks on 1 node`, with its GPUs if an entry is for them."""
        words = shape_words(self.shape)
        text = words if self.shape_name in {"", words} else f"{self.shape_name}, {words}"
        return f"{text}, like {self.placement}" if self.placement else text


KeyT = TypeVar("KeyT", bound=ShownKey)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedKey(ShownKey):
    """A key of a table."""

    min_bytes: int
    """Smallest size that the decision holds for."""
    max_bytes: int
    job: TimedCall
    """In a job here."""
    speedup: float
    """Stock NCCL's time over a job's."""
    runner: Runner
    runs: str
    """The setting or schedule that a job here runs."""
    without_executor: TimedCall | None
    """By the plugin and the process profile, unless NCCL decides or the time is not known."""
    schedule: TimedCall | None
    """The schedule that won, whether or not a job here runs it."""
    schedule_runs: str
    """The schedule and its parameters; empty if none won."""
    schedule_speedup: float | None
    bound_us: float | None = None
    """Time that no schedule undercuts on what a communicator of this shape has of the machine, if
    it is known and assumes no network that is not there."""
    evidence: str
    """A sentence on why this runs."""
    profile_gain: ProfileGain | None = None
    configs_tried: int | None = None


def key_figures(found: ReportedTable, samples: Contents | None) -> tuple[ReportedKey, ...]:
    """Return the figures of all keys, in the order of the table; entries by where ranks sit last.

    Args:
        found: The table.
        samples: The measurements of its run, if the place has them.
    """
    placed = tuple(_placed_keys(found, samples))
    gains = found.gains
    if found.report is None or gains is None:
        entries = tuple(_from_entry(entry, found) for entry in found.table.entries)
        return _named((*entries, *placed), {})
    keys = tuple(_from_gain(gain, gains, found, samples) for gain in gains.keys)
    names = {shape: name for name, shape in found.report.shapes.items()}
    return _named((*_bounded_keys(found, keys), *placed), names)


def by_curve(keys: Sequence[KeyT]) -> list[list[KeyT]]:
    """Return the keys of each operation and shape, by size, with shapes in the table's order.

    Entries by where ranks sit follow those of their shape.
    """
    shapes = list(dict.fromkeys(key.shape for key in keys))
    places = list(dict.fromkeys([None, *(key.placement for key in keys)]))

    def curve(key: KeyT) -> tuple[int, int, Collective]:
        return shapes.index(key.shape), places.index(key.placement), key.operation

    order = sorted(keys, key=lambda key: (curve(key), key.size_bytes))
    return [list(found) for _, found in groupby(order, key=curve)]


def shape_words(shape: Shape) -> str:
    """Return `16 ranks on 2 nodes`."""
    return f"{count_of(shape.ranks, 'rank')} on {count_of(shape.nodes, 'node')}"


def timed(
    task: Task, time_us: float, ratio: float = 1.0, low: float | None = None,
    high: float | None = None,
) -> TimedCall:  # fmt: skip
    """Return a time with the bounds that those of its ratio mean, its reference held."""
    low_us = time_us * ratio / high if high and high < _UNINFORMATIVE * ratio else None
    high_us = time_us * ratio / low if low and ratio < _UNINFORMATIVE * low else None
    return TimedCall(time_us, low_us, high_us, busbw_gb_per_s(task, time_us))


def _placed_keys(found: ReportedTable, samples: Contents | None) -> Iterator[ReportedKey]:
    """Yield the figures of entries for some communicators of a shape."""
    for own in found.table.placements:
        known = own.timed
        placement = ANYWHERE if known is None else Placement(known.stride, known.siblings)
        for entry in own.entries:
            key = _from_entry(entry, found)
            task = Task(key.operation, key.size_bytes, key.shape, placement)
            stock = _stock(task, key.stock.time_us, None if known is None else samples)
            yield replace(key, stock=stock, placement=own.example)


def _named(keys: tuple[ReportedKey, ...], names: Mapping[Shape, str]) -> tuple[ReportedKey, ...]:
    """Return the keys with the names of their shapes, if these are several."""
    if len({key.shape for key in keys}) < 2:
        return keys
    return tuple(
        replace(key, shape_name=names.get(key.shape) or shape_words(key.shape)) for key in keys
    )


def _bounded_keys(found: ReportedTable, keys: tuple[ReportedKey, ...]) -> Iterator[ReportedKey]:
    """Yield the keys with their bounds.

    If a time of the same operation and shape is below its bound, the calls took other links than
    the bound is for, so none is given then.
    """
    curves: dict[tuple[Collective, Shape], list[ReportedKey]] = {}
    for key in keys:
        curves.setdefault((key.operation, key.shape), []).append(key)
    bounds = {curve: _bound(found, *curve) for curve in curves}
    below = {
        curve
        for curve, bound in bounds.items()
        if bound is not None and any(_is_below(key, bound) for key in curves[curve])
    }
    for key in keys:
        bound = bounds[key.operation, key.shape]
        has_bound = bound is not None and (key.operation, key.shape) not in below
        yield replace(key, bound_us=bound.time_us(key.size_bytes)) if bound and has_bound else key


def _bound(found: ReportedTable, operation: Collective, shape: Shape) -> TimeBound | None:
    """Return the bound on a shape's part of the machine.

    A part that is too large has none, nor one that the solver fails on. The links are not those of
    the description between faked nodes, which have no network, and for ranks that share a GPU.
    """
    if found.machine is None or found.report is None or shape.ranks > _MOST_BOUNDED_RANKS:
        return None
    laboratory = found.report.laboratory
    if shape.nodes > 1 and (laboratory.nodes > 1 or laboratory.congestion_control):
        return None
    if laboratory.gpus:
        return None
    try:
        part = SiblingMachines(found.machine).slowest(shape)
        return time_bound(operation, whole_machine(part))
    except (ScheduleError, UsageError):
        return None


def _is_below(key: ReportedKey, bound: TimeBound) -> bool:
    known = (key.stock, key.job, key.without_executor, key.schedule)
    bound_us = bound.time_us(key.size_bytes)
    return any(each is not None and each.time_us < bound_us for each in known)


def _from_gain(
    gain: KeyGain, gains: JobGains, found: ReportedTable, samples: Contents | None
) -> ReportedKey:
    key, entry, without = gain.decision, gain.entry, gain.without_executor
    shape, task = key.shape, gain.task
    stock = _stock(task, key.stock_us, samples)
    profile = _profile_gain(gain) if found.table.profile else None
    alone = stock
    if without.runner is Runner.PLUGIN:
        alone = _compared(task, without.time_us, key.builtin)
    elif without.runner is Runner.PROFILE:
        bounds = () if profile is None else (profile.ratio, profile.low, profile.high)
        alone = timed(task, without.time_us, *bounds)
    schedule, schedule_runs = None, ""
    if entry is not None and entry.schedule is not None:
        schedule = _compared(task, entry.time_us, key.schedule)
        schedule_runs = describe_schedule(entry, found.table)
    evidence = reason(gain, gains.evidence)
    return ReportedKey(
        operation=task.operation,
        size_bytes=key.size_bytes,
        shape=shape,
        min_bytes=key.min_bytes,
        max_bytes=key.max_bytes,
        stock=stock,
        job=schedule if schedule is not None and gain.runner is Runner.EXECUTOR else alone,
        speedup=gain.speedup,
        runner=gain.runner,
        runs=gain.runs,
        without_executor=None if without.runner is Runner.NCCL else alone,
        schedule=schedule,
        schedule_runs=schedule_runs,
        schedule_speedup=None if schedule is None else key.stock_us / schedule.time_us,
        obstacle=gain.obstacle,
        evidence=evidence if found.report is None else found.report.readable(evidence),
        profile_gain=profile,
        configs_tried=key.configs_tried,
    )


def _from_entry(entry: Entry, found: ReportedTable) -> ReportedKey:
    """Return the figures of an entry of a shipped directory."""
    own = entry_in_job(entry, found.table, found.evidence, has_executor=found.has_executor)
    task, shown = own.task, entry.confirmation
    stock = timed(task, entry.default_time_us)
    bounds = () if shown is None else (shown.ratio, shown.low, shown.high)
    winner = timed(task, entry.time_us, *bounds)
    alone: TimedCall | None = winner
    schedule, schedule_runs = None, ""
    if entry.schedule is not None:
        schedule, schedule_runs = winner, describe_schedule(entry, found.table)
        alone = timed(task, entry.builtin_time_us) if entry.builtin_time_us is not None else None
    job = {Runner.EXECUTOR: schedule, Runner.PLUGIN: alone}.get(own.runner) or stock
    is_known = own.runner in {Runner.EXECUTOR, Runner.PLUGIN}
    return ReportedKey(
        operation=own.operation,
        size_bytes=own.size_bytes,
        shape=own.shape,
        min_bytes=entry.key.min_bytes,
        max_bytes=entry.key.max_bytes,
        stock=stock,
        job=job,
        speedup=stock.time_us / job.time_us,
        runner=own.runner,
        runs=own.runs if is_known else "NCCL's own choice, whose time the directory does not hold",
        without_executor=alone,
        schedule=schedule,
        schedule_runs=schedule_runs,
        schedule_speedup=None if schedule is None else stock.time_us / schedule.time_us,
        obstacle=obstacle_to(entry, found.table, found.evidence, has_executor=found.has_executor),
        evidence=f"the winner is {ratio_text(shown)}"
        if shown is not None
        else "the table does not say how it was compared",
    )


def _compared(task: Task, time_us: float, compared: ComparisonReport | None) -> TimedCall:
    if compared is None:
        return timed(task, time_us)
    return timed(task, time_us, compared.ratio, compared.lower_bound, compared.upper_bound)


def _profile_gain(gain: KeyGain) -> ProfileGain:
    key = gain.decision
    in_turn = key.profile_ratio
    if in_turn is None:
        return ProfileGain(key.stock_us / key.profile_default_us, None, None, None)
    return ProfileGain(in_turn.ratio, in_turn.low, in_turn.high, in_turn.starts)


def _stock(task: Task, time_us: float, samples: Contents | None) -> TimedCall:
    """Return stock NCCL's time with the quartiles of its samples, if there are enough."""
    known = () if samples is None else samples.known(task, STOCK).samples_us
    if len(known) < _LEAST_SAMPLES:
        return timed(task, time_us)
    low, _, high = quantiles(known, n=4, method="inclusive")
    return replace(timed(task, time_us), low_us=low, high_us=high)
