"""Visits of process profiles: what every key reaches under one, at the price of one start.

Under the first profile every key tries all its calls, under the others those that were best before
and their neighbours; all once, those near the best again. Where the best is hardly faster than
stock NCCL it is timed more often: what a profile costs a small message is a tenth of a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from tuccl.errors import ConfigurationFailedError
from tuccl.statistics.estimators import error_of_weighted_mean, log_deviation
from tuccl.statistics.intervals import interval_of_two_starts
from tuccl.trials.backend import Measured
from tuccl.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.trials.space import Space, with_profile
from tuccl.tuning.guaranteed_minimum import KeyRatio

Measure = Callable[[Task, Config, int], Measured]
"""`measure(task, config, repeats)`: the first `repeats` samples, and the seconds of all so far."""

_FIRST_LOOK = 1
_SECOND_LOOK = 3
_CLOSE_LOOK = 11
_CLOSE = 1.02
"""Stock's time over the best one's below which a close look is taken."""
_NEAR = 1.08
"""What is that many times slower than the best after the first look is not looked at again."""
_HOPELESS = 1.5
"""What is that many times slower than the best under the first profile is left out under others."""
_CALLS_PER_KEY = 4
_MOST_CALLS = 96
"""Of a key under the first profile; stock NCCL has 22 to 50."""
_TOLERATED_LOSS = 0.01
_LOSS_WEIGHT = 5.0
"""A key's loss against stock beyond the tolerated one counts that many times."""


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
    speedup: float
    """Weighted geometric mean over keys of stock / best; 0 where a key cannot run."""
    keys: tuple[KeyRatio, ...] = ()
    """What this one start showed of each key, within what another start may show."""


@dataclass
class Visitor:
    """Looks at profiles one after the other; later looks know what earlier ones found."""

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
        """Time all keys under a profile."""
        best: dict[Task, tuple[Config, float]] = {}
        errors: dict[Task, float] = {}
        for task, space in self.spaces.items():
            found = self._look(task, self._calls(task, with_profile(space, profile), profile))
            if found:
                config = min(found, key=lambda config: (found[config], config))
                samples_us = self._samples_us(task, config)
                time_us = self.times[task][config] = median(samples_us)
                best[task] = (config, time_us)
                errors[task] = log_deviation(samples_us) / math.sqrt(len(samples_us))
        speedup = math.exp(self._mean(best, 0.0)) if len(best) == len(self.spaces) else 0.0
        gain = self._mean(best, _LOSS_WEIGHT) if speedup else -math.inf
        keys = self._keys(best, errors)
        self.visits.append(Visit(profile, best, gain, self._error(errors), speedup, keys))
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

    def _samples_us(self, task: Task, config: Config) -> tuple[float, ...]:
        """Of a key's best call, as many as it takes."""
        samples_us = self.measure(task, config, _SECOND_LOOK).samples_us
        if self.stock_us[task] / median(samples_us) < _CLOSE:
            with suppress(ConfigurationFailedError):
                samples_us = self.measure(task, config, _CLOSE_LOOK).samples_us
        return samples_us

    def _error(self, errors: Mapping[Task, float]) -> float:
        """Standard error of the gain."""
        weights = [self.weights.get(task, 1.0) for task in errors]
        return error_of_weighted_mean(list(errors.values()), weights)

    def _keys(
        self, best: Mapping[Task, tuple[Config, float]], errors: Mapping[Task, float]
    ) -> tuple[KeyRatio, ...]:
        typical = median(errors.values()) if errors else 0.0
        keys = []
        for task in self.spaces:
            if task not in best:
                keys.append(KeyRatio(task, 0.0, 0.0, 0.0))
                continue
            ratio = self.stock_us[task] / best[task][1]
            # Stock's samples have an error of the same size.
            error = math.sqrt(2.0) * max(errors[task], typical)
            spread = error * math.sqrt(_CLOSE_LOOK / 2.0)
            bounds = interval_of_two_starts(ratio, error, spread)
            keys.append(KeyRatio(task, ratio, bounds.low, bounds.high))
        return tuple(keys)

    def _mean(self, best: Mapping[Task, tuple[Config, float]], loss_weight: float) -> float:
        total = 0.0
        for task in self.spaces:
            gain = math.log(self.stock_us[task] / best[task][1])
            loss = min(0.0, gain + _TOLERATED_LOSS)
            total += self.weights.get(task, 1.0) * (gain + loss_weight * loss)
        return total / sum(self.weights.get(task, 1.0) for task in self.spaces)


def _spread(space: Space, count: int) -> list[Config]:
    """So many configurations at equal distances through a space."""
    configs = list(space)
    return [configs[index * len(configs) // count] for index in range(count)]
