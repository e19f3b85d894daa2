"""Which process profile the table gets: profiles raced against each other over all keys at once.

NCCL reads threads, buffer sizes and the least number of channels once per process, so all keys of a
table share them, and trying other values costs a restart of every worker: seconds, where a sample
costs a millisecond. So profiles are few and keys are measured together. A profile is visited once:
every key tries the calls that were best elsewhere and their neighbours in channels. From the
incumbent one variable moves at a time, up and down its axis, and goes on while it helps: these
variables have one hill (AutoCCL, NSDI 2025, section 4, builds on the same). What a visit gains is
the geometric mean over all keys against stock NCCL; a key that would lose against stock counts
heavily, because no job is only an average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from tuccl.backends.protocol import Measured
from tuccl.errors import ConfigurationFailedError
from tuccl.search.config import STOCK, Config, ProcessProfile, Task

Measure = Callable[[Task, Config, int], Measured]
"""`measure(task, config, repeats)`: the first `repeats` samples, and the seconds of all so far."""

_VARIABLES = ("min_nchannels", "nthreads", "buffer_bytes")
_FIRST_LOOK = 1
_SECOND_LOOK = 3
_NEAR = 1.08
"""What is that many times slower than the best after the first look is not looked at again."""
_CALLS_PER_KEY = 4
_MIN_GAIN = 0.001
"""Relative gain over all keys that makes another profile the incumbent."""
_TOLERATED_LOSS = 0.005
_LOSS_WEIGHT = 10.0
"""A key's loss against stock beyond the tolerated one counts that many times."""


@dataclass(frozen=True, slots=True)
class ProfileAxes:
    """Values that the per-process variables may take, each axis in ascending effect."""

    start: ProcessProfile
    """Where the race begins: NCCL's own values, as far as they can be measured."""
    nthreads: tuple[int, ...]
    buffer_bytes: tuple[int, ...]
    min_nchannels: tuple[int, ...]

    def ways(self, profile: ProcessProfile, variable: str) -> Iterator[tuple[ProcessProfile, ...]]:
        """The ways from a profile along one axis, up and down, nearest first."""
        axis: tuple[int, ...] = getattr(self, variable)
        here = axis.index(getattr(profile, variable))
        for values in (axis[here + 1 :], axis[:here][::-1]):
            if values:
                yield tuple(replace(profile, **{variable: value}) for value in values)


@dataclass(frozen=True, slots=True)
class Visit:
    """A profile with what every key reached under it."""

    profile: ProcessProfile
    best: Mapping[Task, tuple[Config, float]]
    """By key the fastest call and its time in us; keys where nothing ran are missing."""
    gain: float
    """Weighted mean over keys of log(stock / best), losses counted more."""


@dataclass(frozen=True, slots=True)
class RaceResult:
    """How the race ended."""

    winner: ProcessProfile
    visits: tuple[Visit, ...]
    """In their order; the first is the start."""
    calls: Mapping[Task, tuple[Config, ...]]
    """By key the best calls of all visits, under the winner."""
    out_of_budget: bool
    """Whether a visit that would have followed was not paid for."""


@dataclass
class _Race:
    tasks: Sequence[Task]
    channels: Sequence[int]
    measure: Measure
    stock_us: Mapping[Task, float]
    weights: Mapping[Task, float]
    times: dict[Task, dict[Config, float]] = field(default_factory=dict)
    """By key and call, under whatever profile: median us."""
    visits: list[Visit] = field(default_factory=list)

    def visit(self, profile: ProcessProfile) -> Visit:
        best = {}
        for task in self.tasks:
            found = self._look(task, [profile.applied_to(call) for call in self._calls(task)])
            if found:
                config = min(found, key=lambda config: (found[config], config))
                best[task] = (config, found[config])
        self.visits.append(Visit(profile, best, self._gain(best)))
        return self.visits[-1]

    def best_calls(self, task: Task) -> list[Config]:
        """What differs in its per-call part, fastest under any profile first."""
        times = self.times.get(task, {})
        calls: dict[Config, None] = {}
        for config in sorted(times, key=lambda config: (times[config], config)):
            calls.setdefault(ProcessProfile().applied_to(config))
        return list(calls)[:_CALLS_PER_KEY]

    def _calls(self, task: Task) -> list[Config]:
        """NCCL's own choice, the best calls, and the neighbours in channels of the best of all."""
        calls = {STOCK: None, **dict.fromkeys(self.best_calls(task))}
        for call in self.best_calls(task)[:2]:
            if call.nchannels in self.channels:
                here = self.channels.index(call.nchannels)
                near = [
                    *self.channels[max(0, here - 1) : here],
                    *self.channels[here + 1 : here + 2],
                ]
                calls |= dict.fromkeys(replace(call, nchannels=count) for count in near)
        return list(calls)

    def _look(self, task: Task, configs: Sequence[Config]) -> dict[Config, float]:
        """Times of those that ran: all once, those near the best again."""
        first: dict[Config, float] = {}
        for config in configs:
            time_us = self._time_us(task, config, _FIRST_LOOK)
            if time_us is not None:
                first[config] = time_us
        limit_us = _NEAR * min(first.values(), default=0.0)
        found = {}
        for config in (config for config, time_us in first.items() if time_us <= limit_us):
            time_us = self._time_us(task, config, _SECOND_LOOK)
            if time_us is not None:
                found[config] = time_us
        self.times.setdefault(task, {}).update(found)
        return found

    def _time_us(self, task: Task, config: Config, repeats: int) -> float | None:
        try:
            return median(self.measure(task, config, repeats).samples_us)
        except ConfigurationFailedError:
            return None

    def _gain(self, best: Mapping[Task, tuple[Config, float]]) -> float:
        total = 0.0
        for task in self.tasks:
            if task not in best:
                return -math.inf
            gain = math.log(self.stock_us[task] / best[task][1])
            loss = min(0.0, gain + _TOLERATED_LOSS)
            total += self.weights.get(task, 1.0) * (gain + _LOSS_WEIGHT * loss)
        return total / sum(self.weights.get(task, 1.0) for task in self.tasks)


def race(
    axes: ProfileAxes,
    known: Mapping[Task, Mapping[Config, float]],
    stock_us: Mapping[Task, float],
    channels: Sequence[int],
    measure: Measure,
    weights: Mapping[Task, float] | None = None,
    affords: Callable[[], bool] = lambda: True,
    progress: Callable[[ProcessProfile], None] = lambda _: None,
) -> RaceResult:
    """The profile with the best gain over all keys, by coordinate moves from the start.

    Args:
        axes: Values to choose from.
        known: By key the calls that a search under the start profile measured, with their times.
        stock_us: Stock NCCL's time by key.
        channels: Channel counts that calls may take, ascending.
        measure: Gives samples; changes the profile of the workers as needed.
        weights: How much a key counts; 1 where nothing is said.
        affords: Whether another visit is paid for; asked before each.
        progress: Told the profile that is visited next.
    """
    runners = _Race(
        tasks=list(stock_us),
        channels=channels,
        measure=measure,
        stock_us=stock_us,
        weights=weights or {},
        times={task: dict(times) for task, times in known.items()},
    )
    incumbent = runners.visit(axes.start)
    visited = {axes.start: incumbent}
    out_of_budget, improved = False, True
    while improved and not out_of_budget:
        improved = False
        for variable in _VARIABLES:
            for way in axes.ways(incumbent.profile, variable):
                for profile in way:
                    if profile not in visited:
                        out_of_budget = out_of_budget or not affords()
                        if out_of_budget:
                            break
                        progress(profile)
                        visited[profile] = runners.visit(profile)
                    if visited[profile].gain <= incumbent.gain + _MIN_GAIN:
                        break
                    incumbent, improved = visited[profile], True
    winner = incumbent.profile
    calls = {
        task: tuple(winner.applied_to(call) for call in runners.best_calls(task))
        for task in runners.tasks
    }
    return RaceResult(winner, tuple(runners.visits), calls, out_of_budget)
