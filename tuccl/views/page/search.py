"""How the search went: the best so far of each key and family over seconds, and its charts.

A configuration counts with the median of all samples that it had by then, so that a lucky first
sample does not stay the best: the best so far may become slower when it is measured again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import exp, log
from operator import attrgetter
from statistics import median
from typing import Any, TypeVar

import plotly.graph_objects as go

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.quantities import format_seconds
from tuccl.reports.evidence import Evidence
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.views.page.charts import COLOURS, DASHES, SYMBOLS, Chart, line
from tuccl.views.page.keys import ShownKey
from tuccl.workspace.measurement_log import Measurement

_SCHEDULES = "schedules"
_OWN_CHOICE = "NCCL's own choice"
_MOST_STEPS = 120
"""Most points of a line; longer ones are thinned out."""
_MOST_STEPS_TOGETHER = 4_000
"""Most points of the lines of all keys, where these are not very many."""
_LEAST_STEPS = 8
StepT = TypeVar("StepT")


@dataclass(frozen=True, slots=True)
class SearchStep:
    """A change of the best so far of a key's configurations of one family."""

    key: str
    """As `node all_reduce 4K`."""
    family: str
    """An algorithm of NCCL's, its own choice, or schedules."""
    seconds: float
    time_us: float
    config: str


@dataclass(frozen=True, slots=True)
class GainStep:
    """A change of the mean gain of an operation on communicators of one shape."""

    operation: Collective
    shape_name: str
    """As `ShownKey.shape_name`."""
    apart: bool
    """Whether it counts schedules that no job here runs."""
    seconds: float
    gain: float
    """Geometric mean of the gains of the best so far."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The search of a run."""

    seconds: float
    """Seconds of the machine that all measurements took."""
    measurements: int
    tried: Mapping[str, Mapping[str, int]]
    """Number of configurations that were measured, by key and family, that of the best first."""
    failed: Mapping[str, int]
    """Number of configurations that failed, by key."""
    steps: tuple[SearchStep, ...]
    """The steps of each family of each key, in the order of `tried`."""
    gains: tuple[GainStep, ...]


@dataclass
class _Best:
    """The best so far of one family of one key."""

    medians: dict[Config, float] = field(default_factory=dict)
    steps: list[tuple[float, float, str]] = field(default_factory=list)
    """Seconds, time and configuration of each change."""
    best: Config | None = None
    latest_us: float = 0.0

    def note(self, measured: Measurement, readable: Mapping[str, str]) -> None:
        config = measured.config
        self.medians[config] = median(measured.recorded.samples_us)
        if self.best is None or config == self.best:
            self.best = min(self.medians, key=self.medians.__getitem__)
        elif self.medians[config] < self.medians[self.best]:
            self.best = config
        time_us = self.medians[self.best]
        if not self.steps or time_us != self.latest_us:
            self.latest_us = time_us
            text = self.best.describe()
            name = readable.get(self.best.schedule, self.best.schedule)
            text = text.replace(self.best.algorithm, name) if self.best.is_schedule else text
            self.steps.append((round(measured.seconds, 3), float(f"{time_us:.5g}"), text))


def search_progress(
    keys: Sequence[ShownKey],
    history: Iterable[Measurement],
    names: Mapping[str, str],
) -> SearchProgress:
    """Return how the search of a run went.

    Args:
        keys: Its keys.
        history: Its measurements in their order.
        names: Names of schedules by content hash.
    """
    tasks = {Task(key.operation, key.size_bytes, key.shape): key for key in keys}
    found: dict[Task, dict[str, _Best]] = {task: {} for task in tasks}
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
        best = found[measured.task].setdefault(family_name(measured.config), _Best())
        best.note(measured, names)
        for gain in gains:
            if gain.curve == (key.operation, key.shape):
                gain.note(measured.seconds, key, found[measured.task])
    lines = sum(map(len, found.values()))
    most = max(_LEAST_STEPS, min(_MOST_STEPS, _MOST_STEPS_TOGETHER // max(1, lines)))
    # The family of the best first.
    families = {
        key.name: dict(sorted(found[task].items(), key=lambda each: each[1].steps[-1][1]))
        for task, key in tasks.items()
    }
    return SearchProgress(
        seconds,
        count,
        tried={
            key: {family: len(best.medians) for family, best in own.items()}
            for key, own in families.items()
        },
        failed={key.name: failed[task] for task, key in tasks.items()},
        steps=tuple(
            SearchStep(key, family, *step)
            for key, own in families.items()
            for family, best in own.items()
            for step in thinned(best.steps, most)
        ),
        gains=tuple(step for gain in gains for step in thinned(gain.steps)),
    )


class _Gains:
    """The geometric mean over the keys of a curve; a key without a measurement counts as 1."""

    def __init__(self, keys: Sequence[ShownKey], *, schedules: bool, apart: bool) -> None:
        self.curve = keys[0].operation, keys[0].shape
        self._named = keys[0].operation, keys[0].shape_name, apart
        self._schedules = schedules
        """Whether schedules count."""
        self._logs = {key.size_bytes: 0.0 for key in keys}
        self.steps: list[GainStep] = []

    def note(self, seconds: float, key: ShownKey, families: Mapping[str, _Best]) -> None:
        times_us = (
            family.steps[-1][1]
            for name, family in families.items()
            if self._schedules or name != _SCHEDULES
        )
        known = log(key.stock.time_us / min(times_us, default=key.stock.time_us))
        if not self.steps or self._logs[key.size_bytes] != known:
            self._logs[key.size_bytes] = known
            gain = exp(sum(self._logs.values()) / len(self._logs))
            self.steps.append(GainStep(*self._named, round(seconds, 3), round(gain, 4)))


def _gains(keys: Sequence[ShownKey]) -> list[_Gains]:
    """Return what a job runs of each curve and, if schedules stand apart, all of it."""
    curves: dict[tuple[Collective, Shape], list[ShownKey]] = {}
    for key in keys:
        curves.setdefault((key.operation, key.shape), []).append(key)
    gains = []
    for own in curves.values():
        apart = any(key.obstacle is not None for key in own)
        gains.append(_Gains(own, schedules=not apart, apart=False))
        if apart:
            gains.append(_Gains(own, schedules=True, apart=True))
    return gains


def family_name(config: Config) -> str:
    """Return the family of a configuration: its algorithm, or schedules."""
    if config.is_schedule:
        return _SCHEDULES
    if config.is_default:
        return "stock NCCL" if config == STOCK else f"{_OWN_CHOICE} under a profile"
    return config.algorithm


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
    curve = attrgetter("operation", "shape_name", "apart")
    for (operation, shape_name, is_apart), found in groupby(progress.gains, curve):
        steps = list(found)
        apart = " with schedules that no job here runs" if is_apart else ""
        name = f"{shape_name} {operation.value}{apart}".strip()
        told.append(f"{name} ends at {steps[-1].gain:.3f}")
        trace = _best_line(
            f"{name}, {times.value}",
            [(step.seconds, step.gain, name) for step in steps],
            progress.seconds,
            colour=COLOURS[operations.index(operation) % len(COLOURS)],
            dash=DASHES[times],
            template="%{text} after %{x:.1f} s: %{y:.3f}x",
            width=1 if is_apart else 2.5,
        )
        shapes.setdefault(shape_name, []).append(trace)
    axis = {"title": "gain over stock NCCL", "tickformat": ".2f"}
    return Chart(
        "Best so far, all keys of an operation",
        "Geometric mean of stock NCCL's time over that of the best configuration so far, over "
        f"{format_seconds(progress.seconds)} of machine time and {progress.measurements} "
        f"measurements, {times.value}: {'; '.join(told)}.",
        {name: _over_seconds(traces, axis) for name, traces in shapes.items()},
        "Shape",
    )


def _key_chart(progress: SearchProgress, times: Evidence) -> Chart:
    names = list(dict.fromkeys(name for families in progress.tried.values() for name in families))
    axis = {"type": "log", "title": "µs", "nticks": 8}
    traces: dict[str, list[go.Scatter]] = {key: [] for key in progress.tried}
    for (key, family), found in groupby(progress.steps, attrgetter("key", "family")):
        style = names.index(family)
        trace = _best_line(
            f"{family}, {progress.tried[key][family]} tried, {times.value}",
            [(step.seconds, step.time_us, step.config) for step in found],
            progress.seconds,
            colour=COLOURS[style % len(COLOURS)],
            dash=DASHES[times],
            symbol=SYMBOLS[style % len(SYMBOLS)],
            template="%{text}: %{y:.2f} µs after %{x:.1f} s",
        )
        traces[key].append(trace)
    won = Counter(next(iter(families)) for families in progress.tried.values() if families)
    counted = ", ".join(f"{name} for {count}" for name, count in won.items())
    return Chart(
        "Best so far of each family of algorithm",
        "Time of the best configuration so far of each family, over seconds of the machine, "
        f"{times.value}, for the key that is chosen."
        + (f" Fastest at the end: {counted} of the keys." if counted else ""),
        {key: _over_seconds(own, axis) for key, own in traces.items()},
        "Key",
    )


def _best_line(
    name: str, steps: Sequence[tuple[float, float, str]], end_s: float, **style: Any
) -> go.Scatter:
    """Return a line that keeps each value until the next, and the last to the end."""
    points = [*steps, (end_s, *steps[-1][1:])]
    seconds, values, texts = zip(*points, strict=True)
    intervals = [(value, None, None) for value in values]
    return line(name, seconds, intervals, texts, shape="hv", **style).update(marker_size=6)


def _over_seconds(traces: Sequence[go.Scatter], axis: Mapping[str, Any]) -> go.Figure:
    seconds = {"title": "seconds of the machine", "rangemode": "tozero"}
    return go.Figure(traces).update_layout(xaxis=seconds, yaxis=axis)
