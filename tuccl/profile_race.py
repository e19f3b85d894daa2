"""Which process profile the table gets: profiles raced against each other over all keys at once.

NCCL reads threads, buffer sizes and the least number of channels once per process, so all keys of a
table share them, and trying other values costs a restart of every worker: seconds, where a sample
costs a millisecond. So profiles are few and keys are measured together. A profile is visited once:
under the first every key tries all its calls, under the others those that were best before and
their neighbours. From the incumbent one variable moves at a time, up and down its axis, and goes on
while it helps: these variables have one hill (AutoCCL, NSDI 2025, section 4, builds on the same).
What a visit gains is the geometric mean over all keys against stock NCCL; a key that would lose
against stock counts heavily, because no job is only an average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median, stdev

from tuccl.backends.protocol import Measured
from tuccl.errors import ConfigurationFailedError
from tuccl.search.config import DEFAULT_ALGORITHM, STOCK, Config, ProcessProfile, Task
from tuccl.search.space import Space, ascending, nearest_to_own, with_profile

Measure = Callable[[Task, Config, int], Measured]
"""`measure(task, config, repeats)`: the first `repeats` samples, and the seconds of all so far."""

_VARIABLES = ("min_nchannels", "nthreads", "buffer_bytes")
_FIRST_LOOK = 1
_SECOND_LOOK = 3
_NEAR = 1.08
"""What is that many times slower than the best after the first look is not looked at again."""
_HOPELESS = 1.5
"""What is that many times slower than the best under the first profile is left out under others."""
_CALLS_PER_KEY = 4
_MOST_CALLS = 96
"""Of a key under the first profile; stock NCCL has 22 to 50."""
_MIN_GAIN = 0.001
"""Relative gain over all keys that makes another profile the incumbent."""
_TOLERATED_LOSS = 0.01
_LOSS_WEIGHT = 5.0
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


def profile_axes(spaces: Iterable[Space]) -> ProfileAxes:
    """The axes of joint spaces: whatever value some built-in algorithm may take in one of them."""
    found: dict[str, set[int]] = {variable: set() for variable in _VARIABLES}
    for space in spaces:
        for family in space.families:
            if family.algorithm != DEFAULT_ALGORITHM:
                for variable, values in found.items():
                    values.update(getattr(family, variable))
    axes = {variable: ascending(variable, values or {0}) for variable, values in found.items()}
    start = {variable: nearest_to_own(variable, axis) for variable, axis in axes.items()}
    return ProfileAxes(ProcessProfile(**start), **axes)


@dataclass(frozen=True, slots=True)
class Visit:
    """A profile with what every key reached under it."""

    profile: ProcessProfile
    best: Mapping[Task, tuple[Config, float]]
    """By key the fastest call and its time in us; keys where nothing ran are missing."""
    gain: float
    """Weighted mean over keys of log(stock / best), losses counted more."""
    error: float
    """Standard error of the gain, from the spread of the samples."""


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
    spaces: Mapping[Task, Space]
    measure: Measure
    stock_us: Mapping[Task, float]
    weights: Mapping[Task, float]
    times: dict[Task, dict[Config, float]] = field(default_factory=dict)
    """By key and call, under whatever profile: median us."""
    hopeless: dict[Task, set[Config]] = field(default_factory=dict)
    """By key the calls, without a profile, that are not looked at again."""
    visits: list[Visit] = field(default_factory=list)

    def visit(self, profile: ProcessProfile) -> Visit:
        best = {}
        for task, space in self.spaces.items():
            found = self._look(task, self._calls(task, with_profile(space, profile), profile))
            if found:
                config = min(found, key=lambda config: (found[config], config))
                best[task] = (config, found[config])
        self.visits.append(Visit(profile, best, self._gain(best), self._error(best)))
        return self.visits[-1]

    def best_calls(self, task: Task) -> list[Config]:
        """What differs in its per-call part, fastest under any profile first."""
        times = self.times.get(task, {})
        calls: dict[Config, None] = {}
        for config in sorted(times, key=lambda config: (times[config], config)):
            calls.setdefault(ProcessProfile().applied_to(config))
        return list(calls)[:_CALLS_PER_KEY]

    def _calls(self, task: Task, space: Space, profile: ProcessProfile) -> list[Config]:
        """NCCL's own choice, and all calls at first; later the best and what is near them."""
        best = [profile.applied_to(call) for call in self.best_calls(task)]
        if not best:
            everything = space if space.size <= _MOST_CALLS else _spread(space, _MOST_CALLS)
            return list(dict.fromkeys((profile.default, *everything)))
        near = [other for call in best[:2] if call in space for other in space.neighbours(call)]
        hopeless = self.hopeless[task]
        wanted = dict.fromkeys((profile.default, *best, *near))
        return [
            call
            for call in wanted
            if call.is_default or (call in space and STOCK.profile.applied_to(call) not in hopeless)
        ]

    def _look(self, task: Task, configs: Sequence[Config]) -> dict[Config, float]:
        """Times of those that ran: all once, those near the best again."""
        first: dict[Config, float] = {}
        for config in configs:
            time_us = self._time_us(task, config, _FIRST_LOOK)
            if time_us is not None:
                first[config] = time_us
        best_us = min(first.values(), default=0.0)
        limit_us = _NEAR * best_us
        self.hopeless.setdefault(
            task,
            {
                STOCK.profile.applied_to(config)
                for config, time_us in first.items()
                if time_us > _HOPELESS * best_us
            },
        )
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

    def _error(self, best: Mapping[Task, tuple[Config, float]]) -> float:
        variance = total = 0.0
        for task, (config, _) in best.items():
            samples_us = self.measure(task, config, _SECOND_LOOK).samples_us
            weight = self.weights.get(task, 1.0)
            spread = stdev(map(math.log, samples_us)) if len(samples_us) > 1 else 0.0
            variance += weight**2 * spread**2 / len(samples_us)
            total += weight
        return math.sqrt(variance) / total if total else 0.0

    def _gain(self, best: Mapping[Task, tuple[Config, float]]) -> float:
        total = 0.0
        for task in self.spaces:
            if task not in best:
                return -math.inf
            gain = math.log(self.stock_us[task] / best[task][1])
            loss = min(0.0, gain + _TOLERATED_LOSS)
            total += self.weights.get(task, 1.0) * (gain + _LOSS_WEIGHT * loss)
        return total / sum(self.weights.get(task, 1.0) for task in self.spaces)


def race(
    spaces: Mapping[Task, Space],
    stock_us: Mapping[Task, float],
    measure: Measure,
    weights: Mapping[Task, float] | None = None,
    affords: Callable[[], bool] = lambda: True,
    progress: Callable[[ProcessProfile], None] = lambda _: None,
) -> RaceResult:
    """The profile with the best gain over all keys, by coordinate moves from the start.

    Args:
        spaces: By key the joint space of what is chosen per call and per process.
        stock_us: Stock NCCL's time by key.
        measure: Gives samples; changes the profile of the workers as needed.
        weights: How much a key counts; 1 where nothing is said.
        affords: Whether another visit is paid for; asked before each but the first.
        progress: Told the profile that is visited next.
    """
    axes = profile_axes(spaces.values())
    runners = _Race(spaces, measure, stock_us, weights or {})
    progress(axes.start)
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
                    if not _is_better(visited[profile], incumbent):
                        break
                    incumbent, improved = visited[profile], True
    winner = incumbent.profile
    calls = {
        task: tuple(winner.applied_to(call) for call in runners.best_calls(task)) for task in spaces
    }
    return RaceResult(winner, tuple(runners.visits), calls, out_of_budget)


def _is_better(visit: Visit, incumbent: Visit) -> bool:
    """Whether a profile gains more than another beyond the noise."""
    noise = 2.0 * math.hypot(visit.error, incumbent.error)
    return visit.gain > incumbent.gain + max(_MIN_GAIN, noise)


def _spread(space: Space, count: int) -> list[Config]:
    """So many configurations at equal distances through a space."""
    configs = list(space)
    return [configs[index * len(configs) // count] for index in range(count)]
