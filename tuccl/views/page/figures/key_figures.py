"""Figures of the keys of a table: what stock NCCL and a job take, with the evidence for it.

A shipped directory has only the keys with an entry, and no times under the process profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import quantiles

from lookup_tables.confirmation import Confirmation, NoStarts
from lookup_tables.table import Entry, Operation, Shape
from sketches.candidates import whole_machine
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from synthesizer.errors import SynthesisError
from synthesizer.ir.collectives import Collective
from tuccl.errors import UsageError
from tuccl.models.figures import communicator_shape
from tuccl.models.siblings import SiblingMachines
from tuccl.reports.choice_text import describe_builtin, describe_runner, describe_schedule
from tuccl.reports.decision_sentence import ratio_text
from tuccl.reports.explanation import reason
from tuccl.reports.job_gains import JobGains, KeyGain, Obstacle, Runner, job_gains, obstacle_to
from tuccl.reports.report import ComparisonReport
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.shipping.bench.bandwidths import busbw_gb_per_s
from tuccl.views.page.figures.places import ReportedTable
from tuccl.words.counts import count_of
from tuccl.words.sizes import format_size
from tuccl.workspace.measurement_lines import Contents

_MOST_BOUNDED_RANKS = 64
"""Most ranks for which a bound is computed: beyond, the linear program takes long."""
_UNINFORMATIVE = 100.0
"""A bound that differs from its ratio by this factor is left out."""
_LEAST_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Timed:
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
    """Starts of each in turn; None: single starts at different times, without bounds."""


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """One operation and size on one shape of communicator."""

    operation: Operation
    size_bytes: int
    shape: Shape
    shape_name: str
    """`whole`, `node`, `rail` or `pairs`, or else the shape in words; empty in a table of one."""
    min_bytes: int
    """Smallest size that the decision holds for."""
    max_bytes: int
    stock: Timed
    """Its interval is between the quartiles of its samples, where the place has them."""
    job: Timed
    """In a job here."""
    speedup: float
    """Stock NCCL's time over a job's."""
    runner: Runner
    runs: str
    """The setting or schedule that a job here runs."""
    without_executor: Timed | None
    """By the plugin and the process profile; None where NCCL decides or a time is not known."""
    schedule: Timed | None
    """The schedule that won, whether or not a job here runs it."""
    schedule_runs: str
    """The schedule and its parameters; empty where none won."""
    schedule_speedup: float | None
    obstacle: Obstacle | None
    """Why a job here does not run the schedule."""
    bound_us: float | None
    """Time that no schedule undercuts on what a communicator of this shape has of the machine;
    None: not known, or it assumes a network that is not there."""
    evidence: str
    """A sentence on why this runs."""
    profile_gain: ProfileGain | None
    configs_tried: int | None
    placement: str = ""
    """GPUs of a communicator, for an entry of those like it alone; empty: wherever ranks sit."""

    @property
    def curve(self) -> str:
        """Operation, with the shape where the table has several: `node all_reduce`.

        An entry by where ranks sit has GPUs besides: `all_reduce, like n0/gpu0 and n0/gpu3`.
        """
        like = f", like {self.placement}" if self.placement else ""
        return f"{self.shape_name} {self.operation.value}{like}".strip()

    @property
    def name(self) -> str:
        """Name in a table: `node all_reduce 4K`."""
        return replace(self, placement="").curve + f" {format_size(self.size_bytes)}"

    @property
    def bound_gb_per_s(self) -> float | None:
        """The bus bandwidth that the bound allows."""
        if self.bound_us is None:
            return None
        return busbw_gb_per_s(Task(self.operation, self.size_bytes, self.shape), self.bound_us)


def keys_of(found: ReportedTable, samples: Contents | None) -> tuple[KeyFigures, ...]:
    """Return the figures of all keys, in the order of the table; entries by where ranks sit last.

    Args:
        found: The table.
        samples: The measurements of its run, if the place has them.
    """
    placed = tuple(_placed_keys(found, samples))
    if found.report is None:
        entries = tuple(_of_entry(entry, found) for entry in found.table.entries)
        return _named((*entries, *placed), {})
    gains = job_gains(found.table, found.report, has_executor=found.has_executor)
    keys = tuple(_of_gain(gain, gains, found, samples) for gain in gains.keys)
    names = {shape: name for name, shape in found.report.shapes.items()}
    return _named((*_bounded_keys(found, keys), *placed), names)


def _placed_keys(found: ReportedTable, samples: Contents | None) -> Iterator[KeyFigures]:
    """Yield the figures of entries for some communicators of a shape."""
    for own in found.table.placements:
        timed = own.timed
        placement = ANYWHERE if timed is None else Placement(timed.stride, timed.siblings)
        for entry in own.entries:
            key = _of_entry(entry, found)
            task = Task(key.operation, key.size_bytes, key.shape, placement)
            known = None if timed is None else samples
            stock = _timed(task, key.stock.time_us, *_quartiles(task, known))
            yield replace(key, stock=stock, placement=own.example)


def _named(keys: tuple[KeyFigures, ...], names: Mapping[Shape, str]) -> tuple[KeyFigures, ...]:
    """Return the keys with the names of their shapes, where these are several."""
    if len({key.shape for key in keys}) < 2:
        return keys
    return tuple(
        replace(key, shape_name=names.get(key.shape) or shape_words(key.shape)) for key in keys
    )


def shape_words(shape: Shape) -> str:
    """Return `16 ranks on 2 nodes`."""
    return f"{count_of(shape.ranks, 'rank')} on {count_of(shape.nodes, 'node')}"


def _bounded_keys(found: ReportedTable, keys: tuple[KeyFigures, ...]) -> tuple[KeyFigures, ...]:
    """Return the keys with their bounds.

    A bound that a time of the same operation and shape is below holds for other links than those
    that the calls took, so none is given then.
    """
    curves: dict[tuple[Operation, Shape], list[KeyFigures]] = {}
    for key in keys:
        curves.setdefault((key.operation, key.shape), []).append(key)
    bounds: dict[tuple[Operation, Shape], TimeBound] = {}
    for (operation, shape), own in curves.items():
        bound = _bound(found, operation, shape)
        if bound is not None and not any(_is_below(key, bound) for key in own):
            bounds[operation, shape] = bound
    return tuple(
        replace(key, bound_us=bounds[key.operation, key.shape].time_us(key.size_bytes))
        if (key.operation, key.shape) in bounds
        else key
        for key in keys
    )


def _bound(found: ReportedTable, operation: Operation, shape: Shape) -> TimeBound | None:
    """Return the bound on a shape's part of the machine.

    None where it is too large, the solver fails, or the links are not those of the description:
    between faked nodes there is no network, and ranks that share a GPU have no links.
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
        return time_bound(Collective(operation.value), whole_machine(part))
    except (SynthesisError, UsageError):
        return None


def _is_below(key: KeyFigures, bound: TimeBound) -> bool:
    known = (key.stock, key.job, key.without_executor, key.schedule)
    bound_us = bound.time_us(key.size_bytes)
    return any(timed is not None and timed.time_us < bound_us for timed in known)


def _shape_of(gain: KeyGain, found: ReportedTable) -> Shape:
    """Return a key's shape, which reports of earlier releases do not name."""
    if gain.key.shape is not None:
        return gain.key.shape
    if found.table.entries or found.machine is None:
        return found.table.entries[0].key.shape
    return communicator_shape(found.machine)


def _of_gain(
    gain: KeyGain,
    gains: JobGains,
    found: ReportedTable,
    samples: Contents | None,
) -> KeyFigures:
    key, entry = gain.key, gain.entry
    shape = _shape_of(gain, found)
    task = Task(Operation(key.operation), key.size_bytes, shape)
    stock = _timed(task, key.stock_us, *_quartiles(task, samples))
    profile = _profile_gain(gain) if found.table.profile else None
    alone = stock
    if gain.without_executor is Runner.PLUGIN:
        alone = _compared(task, gain.without_executor_us, key.builtin)
    elif gain.without_executor is Runner.PROFILE:
        alone = _by_ratio(task, gain.without_executor_us, profile)
    schedule = None
    if entry is not None and entry.schedule is not None:
        schedule = _compared(task, entry.time_us, key.schedule)
    runs_schedule = gain.runner is Runner.EXECUTOR and schedule is not None
    readable = reason(gain, gains.evidence)
    return KeyFigures(
        operation=task.operation,
        size_bytes=key.size_bytes,
        shape=shape,
        shape_name="",
        min_bytes=key.min_bytes,
        max_bytes=key.max_bytes,
        stock=stock,
        job=schedule if runs_schedule and schedule is not None else alone,
        speedup=gain.speedup,
        runner=gain.runner,
        runs=describe_runner(gain, found.table),
        without_executor=None if gain.without_executor is Runner.NCCL else alone,
        schedule=schedule,
        schedule_runs="" if schedule is None or entry is None else _schedule_text(entry, found),
        schedule_speedup=None if schedule is None else key.stock_us / schedule.time_us,
        obstacle=gain.obstacle,
        bound_us=None,
        evidence=readable if found.report is None else found.report.readable(readable),
        profile_gain=profile,
        configs_tried=key.configs_tried,
    )


def _of_entry(entry: Entry, found: ReportedTable) -> KeyFigures:
    """Return the figures of an entry of a shipped directory."""
    task = Task(entry.key.operation, entry.tuned_bytes, entry.key.shape)
    obstacle = obstacle_to(entry, found.table, found.evidence, has_executor=found.has_executor)
    stock = _timed(task, entry.default_time_us)
    winner = _confirmed(task, entry)
    schedule = winner if entry.schedule is not None else None
    alone = winner if schedule is None else None
    if schedule is not None and entry.builtin_time_us is not None:
        alone = _timed(task, entry.builtin_time_us)
    runner = Runner.EXECUTOR if schedule is not None and obstacle is None else Runner.PLUGIN
    job = schedule if runner is Runner.EXECUTOR else alone
    if job is None:
        runner, job = (Runner.PROFILE if found.table.profile else Runner.NCCL), stock
    runs = {
        Runner.EXECUTOR: _schedule_text(entry, found),
        Runner.PLUGIN: describe_builtin(entry),
    }
    return KeyFigures(
        operation=task.operation,
        size_bytes=task.size_bytes,
        shape=task.shape,
        shape_name="",
        min_bytes=entry.key.min_bytes,
        max_bytes=entry.key.max_bytes,
        stock=stock,
        job=job,
        speedup=stock.time_us / job.time_us,
        runner=runner,
        runs=runs.get(runner, "NCCL's own choice, whose time the directory does not hold"),
        without_executor=alone,
        schedule=schedule,
        schedule_runs="" if schedule is None else _schedule_text(entry, found),
        schedule_speedup=None if schedule is None else stock.time_us / schedule.time_us,
        obstacle=obstacle,
        bound_us=None,
        evidence=_confirmation_text(entry),
        profile_gain=None,
        configs_tried=None,
    )


def _schedule_text(entry: Entry, found: ReportedTable) -> str:
    return describe_schedule(entry, found.table)


def _timed(
    task: Task, time_us: float, low_us: float | None = None, high_us: float | None = None
) -> Timed:
    return Timed(time_us, low_us, high_us, busbw_gb_per_s(task, time_us))


def _bounded(
    task: Task, time_us: float, ratio: float, low: float | None, high: float | None
) -> Timed:
    """Return a time with the bounds that those of its ratio mean, its reference held."""
    low_us = time_us * ratio / high if high and high < _UNINFORMATIVE * ratio else None
    high_us = time_us * ratio / low if low and ratio < _UNINFORMATIVE * low else None
    return _timed(task, time_us, low_us, high_us)


def _compared(task: Task, time_us: float, compared: ComparisonReport | None) -> Timed:
    if compared is None:
        return _timed(task, time_us)
    return _bounded(task, time_us, compared.ratio, compared.lower_bound, compared.upper_bound)


def _confirmed(task: Task, entry: Entry) -> Timed:
    shown = entry.confirmation
    if shown is None:
        return _timed(task, entry.time_us)
    return _bounded(task, entry.time_us, shown.ratio, shown.low, shown.high)


def _by_ratio(task: Task, time_us: float, gain: ProfileGain | None) -> Timed:
    if gain is None:
        return _timed(task, time_us)
    return _bounded(task, time_us, gain.ratio, gain.low, gain.high)


def _profile_gain(gain: KeyGain) -> ProfileGain:
    key = gain.key
    in_turn = key.profile_ratio
    if in_turn is None:
        return ProfileGain(key.stock_us / key.profile_default_us, None, None, None)
    return ProfileGain(in_turn.ratio, in_turn.low, in_turn.high, in_turn.starts)


def _quartiles(task: Task, samples: Contents | None) -> tuple[float | None, float | None]:
    """Return the quartiles of stock NCCL's samples; None where there are too few."""
    known: tuple[float, ...] = ()
    if samples is not None:
        # A log of several shapes has the full names.
        names = (task.full_name, task.name)
        known = next(filter(None, (samples.known(name, STOCK).samples_us for name in names)), ())
    if len(known) < _LEAST_SAMPLES:
        return None, None
    low, _, high = quantiles(known, n=4, method="inclusive")
    return low, high


def _confirmation_text(entry: Entry) -> str:
    shown: Confirmation | None = entry.confirmation
    if shown is None:
        return "the table does not say how it was compared"
    compared = ComparisonReport(
        config="",
        time_us=entry.time_us,
        reference_us=entry.time_us * shown.ratio,
        ratio=shown.ratio,
        lower_bound=shown.low,
        samples=entry.samples,
        spread=entry.spread,
        upper_bound=shown.high,
        confidence=shown.confidence,
        reference=shown.reference,
        estimator=shown.estimator,
        starts=shown.starts if isinstance(shown.starts, int) else NoStarts(shown.starts),
    )
    return f"the winner is {ratio_text(compared)}"
