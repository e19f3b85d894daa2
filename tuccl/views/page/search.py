"""How the search went: the best so far of each key and family over seconds, and its charts.

A configuration counts with the median of all samples that it had by then, so that a lucky first
sample does not stay the best: the best so far may become slower when it is measured again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import median
from typing import Any, TypeVar

import plotly.graph_objects as go

from lookup_tables.table import Operation, Shape
from tuccl.quantities import format_seconds
from tuccl.reports.evidence import Evidence
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.views.page.charts import COLOURS, DASHES, SYMBOLS, Chart, line
from tuccl.views.page.keys import Key
from tuccl.workspace.measurement_history import Measurement

_SCHEDULES = "schedules"
_OWN_CHOICE = "NCCL's own choice"
_MOST_STEPS = 120
"""Most points of a line; longer ones are thinned out."""
_MOST_STEPS_TOGETHER = 4_000
"""Most points of the lines of all keys, where these are not very many."""
_LEAST_STEPS = 8
StepT = TypeVar("StepT")


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the best so far."""

    seconds: float
    time_us: float
    config: str


@dataclass(frozen=True, slots=True)
class Family:
    """The best so far of the configurations of one algorithm."""

    name: str
    """An algorithm of NCCL's, its own choice, or schedules."""
    steps: tuple[Step, ...]
    configs: int
    """Number of its configurations that were measured."""


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The search of one key."""

    key: str
    """As `node all_reduce 4K`."""
    operation: Operation
    size_bytes: int
    shape: Shape
    stock_us: float
    families: tuple[Family, ...]
    """The family of the best first."""
    failed: int
    """Number of configurations that failed."""


@dataclass(frozen=True, slots=True)
class GainStep:
    """The geometric mean of the gains of the best so far."""

    seconds: float
    gain: float


@dataclass(frozen=True, slots=True)
class GainLine:
    """The mean gain of an operation on communicators of one shape, over time."""

    operation: Operation
    shape: Shape
    shape_name: str
    """As `Key.shape_name`."""
    apart: bool
    """Whether it counts schedules that no job here runs."""
    steps: tuple[GainStep, ...]


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The search of a run."""

    seconds: float
    """Seconds of the machine that all measurements took."""
    measurements: int
    keys: tuple[KeySearch, ...]
    gains: tuple[GainLine, ...]


@dataclass
class _Best:
    """The best so far of one family of one key."""

    medians: dict[Config, float] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    best: Config | None = None
    _latest_us: float = 0.0

    def note(self, measured: Measurement, readable: Mapping[str, str]) -> None:
        config = measured.config
        self.medians[config] = median(measured.recorded.samples_us)
        if self.best is None or config == self.best:
            self.best = min(self.medians, key=self.medians.__getitem__)
        elif self.medians[config] < self.medians[self.best]:
            self.best = config
        time_us = self.medians[self.best]
        if not self.steps or time_us != self._latest_us:
            self._latest_us = time_us
            text = self.best.describe()
            name = readable.get(self.best.schedule, self.best.schedule)
            text = text.replace(self.best.algorithm, name) if self.best.is_schedule else text
            self.steps.append(Step(round(measured.seconds, 3), float(f"{time_us:.5g}"), text))


def search_progress(
    keys: Sequence[Key],
    history: Iterable[Measurement],
    names: Mapping[str, str],
    *,
    full_names: bool,
) -> SearchProgress:
    """Return how the search of a run went.

    Args:
        keys: Its keys.
        history: Its measurements in their order.
        names: Names of schedules by content hash.
        full_names: Whether the log names the shapes of keys.
    """
    tasks = {
        task.full_name if full_names else task.name: key
        for key in keys
        for task in [Task(key.operation, key.size_bytes, key.shape)]
    }
    found: dict[str, dict[str, _Best]] = {name: {} for name in tasks}
    failed = dict.fromkeys(tasks, 0)
    gains = _gains(keys)
    seconds, count = 0.0, 0
    for measured in history:
        seconds, count = measured.seconds, count + 1
        key = tasks.get(measured.task)
        if key is None:
            continue
        if measured.recorded.failed:
            failed[measured.task] += 1
            continue
        best = found[measured.task].setdefault(family_of(measured.config), _Best())
        best.note(measured, names)
        for gain in gains:
            gain.note(measured.seconds, key, found[measured.task])
    lines = sum(map(len, found.values()))
    most = max(_LEAST_STEPS, min(_MOST_STEPS, _MOST_STEPS_TOGETHER // max(1, lines)))
    return SearchProgress(
        seconds,
        count,
        tuple(
            KeySearch(
                key.name,
                key.operation,
                key.size_bytes,
                key.shape,
                key.stock.time_us,
                _families(found[name], most),
                failed[name],
            )
            for name, key in tasks.items()
        ),
        tuple(gain.line for gain in gains if gain.steps),
    )


class _Gains:
    """The geometric mean over the keys of a curve; a key without a measurement counts as 1."""

    def __init__(self, keys: Sequence[Key], *, schedules: bool, apart: bool) -> None:
        self.of = keys[0]
        """A key of the operation and shape."""
        self.apart = apart
        self.schedules = schedules
        """Whether schedules count."""
        self.logs = {key.size_bytes: 0.0 for key in keys}
        self.steps: list[GainStep] = []

    @property
    def line(self) -> GainLine:
        """The line of a chart."""
        of = self.of
        return GainLine(of.operation, of.shape, of.shape_name, self.apart, thinned(self.steps))

    def note(self, seconds: float, key: Key, families: Mapping[str, _Best]) -> None:
        if (key.operation, key.shape) != (self.of.operation, self.of.shape):
            return
        times_us = (
            family.steps[-1].time_us
            for name, family in families.items()
            if self.schedules or name != _SCHEDULES
        )
        best_us = min(times_us, default=key.stock.time_us)
        known = log(key.stock.time_us / best_us)
        if self.steps and self.logs[key.size_bytes] == known:
            return
        self.logs[key.size_bytes] = known
        gain = exp(sum(self.logs.values()) / len(self.logs))
        self.steps.append(GainStep(round(seconds, 3), round(gain, 4)))


def _gains(keys: Sequence[Key]) -> list[_Gains]:
    """Return what a job runs of each curve and, where schedules stand apart, all of it."""
    curves: dict[tuple[Operation, Shape], list[Key]] = {}
    for key in keys:
        curves.setdefault((key.operation, key.shape), []).append(key)
    gains = []
    for own in curves.values():
        apart = any(key.obstacle is not None for key in own)
        gains.append(_Gains(own, schedules=not apart, apart=False))
        if apart:
            gains.append(_Gains(own, schedules=True, apart=True))
    return gains


def family_of(config: Config) -> str:
    """Return the family of a configuration: its algorithm, or schedules."""
    if config.is_schedule:
        return _SCHEDULES
    if config.is_default:
        return "stock NCCL" if config == STOCK else f"{_OWN_CHOICE} under a profile"
    return config.algorithm


def _families(found: Mapping[str, _Best], most: int) -> tuple[Family, ...]:
    order = sorted(found, key=lambda name: found[name].steps[-1].time_us)
    return tuple(
        Family(name, thinned(found[name].steps, most), len(found[name].medians)) for name in order
    )


def thinned(steps: Sequence[StepT], most: int = _MOST_STEPS) -> tuple[StepT, ...]:
    """Return about as many of the steps, the first and the last among them."""
    every = max(1, -(-len(steps) // most))
    kept = steps[::every]
    return (*kept, steps[-1]) if kept and kept[-1] is not steps[-1] else tuple(kept)


def search_charts(progress: SearchProgress, times: Evidence) -> tuple[Chart, Chart]:
    """Return the charts of the mean gain of all keys, and of each key by families."""
    return _mean_chart(progress, times), _key_chart(progress, times)


def _mean_chart(progress: SearchProgress, times: Evidence) -> Chart:
    operations = list(dict.fromkeys(gain.operation for gain in progress.gains))
    shapes: dict[str, list[go.Scatter]] = {}
    told = []
    for gain in progress.gains:
        apart = " with schedules that no job here runs" if gain.apart else ""
        name = f"{gain.shape_name} {gain.operation.value}{apart}".strip()
        told.append(f"{name} ends at {gain.steps[-1].gain:.3f}")
        points = [*((step.seconds, step.gain) for step in gain.steps)]
        points.append((progress.seconds, gain.steps[-1].gain))
        trace = line(
            f"{name}, {times.value}",
            [seconds for seconds, _ in points],
            [(value, None, None) for _, value in points],
            [name] * len(points),
            colour=COLOURS[operations.index(gain.operation) % len(COLOURS)],
            dash=DASHES[times],
            template="%{text} after %{x:.1f} s: %{y:.3f}x",
            shape="hv",
            width=1 if gain.apart else 2.5,
        )
        shapes.setdefault(gain.shape_name, []).append(trace)
    axis = {"title": "gain over stock NCCL", "tickformat": ".2f"}
    return Chart(
        "Best so far, all keys of an operation",
        "Geometric mean of stock NCCL's time over that of the best configuration so far, over "
        f"{format_seconds(progress.seconds)} of machine time and {progress.measurements} "
        f"measurements, {times.value}: {'; '.join(told)}.",
        {name: _over_seconds(traces, axis) for name, traces in shapes.items()},
        choose="Shape",
    )


def _key_chart(progress: SearchProgress, times: Evidence) -> Chart:
    names = list(dict.fromkeys(each.name for key in progress.keys for each in key.families))
    axis = {"type": "log", "title": "µs", "nticks": 8}
    figures = {}
    for key in progress.keys:
        traces = []
        for family in key.families:
            style = names.index(family.name)
            steps = [(step.seconds, step) for step in family.steps]
            steps.append((progress.seconds, family.steps[-1]))
            trace = line(
                f"{family.name}, {family.configs} tried, {times.value}",
                [seconds for seconds, _ in steps],
                [(step.time_us, None, None) for _, step in steps],
                [step.config for _, step in steps],
                colour=COLOURS[style % len(COLOURS)],
                dash=DASHES[times],
                symbol=SYMBOLS[style % len(SYMBOLS)],
                template="%{text}: %{y:.2f} µs after %{x:.1f} s",
                shape="hv",
            )
            traces.append(trace.update(marker_size=6))
        figures[key.key] = _over_seconds(traces, axis)
    won = Counter(key.families[0].name for key in progress.keys if key.families)
    counted = ", ".join(f"{name} for {count}" for name, count in won.items())
    return Chart(
        "Best so far of each family of algorithm",
        "Time of the best configuration so far of each family, over seconds of the machine, "
        f"{times.value}, for the key that is chosen."
        + (f" Fastest at the end: {counted} of the keys." if counted else ""),
        figures,
        choose="Key",
    )


def _over_seconds(traces: Sequence[go.Scatter], axis: Mapping[str, Any]) -> go.Figure:
    seconds = {"title": "seconds of the machine", "rangemode": "tozero"}
    return go.Figure(traces).update_layout(xaxis=seconds, yaxis=axis)
