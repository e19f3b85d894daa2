"""Visits of process profiles: in one start, each times the calls of every key under a profile.

Under the first profile every key tries its calls, under the others the calls that were best before
and their neighbours. The first visit begins with the middle number of channels of each algorithm
and protocol, then takes the fewest and most of those that are not hopeless: those that are far
behind with all are not looked at further, and where a budget is used up the rest is left to the
searches. All are timed once, those near the best again.
Where the best is hardly faster than stock NCCL it is timed more often: a profile costs a small
message as little as a tenth of a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from tuccl.errors import ConfigurationFailedError
from tuccl.quantities import format_size
from tuccl.search.statistics.estimators import error_of_weighted_mean, log_deviation
from tuccl.search.statistics.intervals import interval_of_two_starts
from tuccl.search.strategies.strategy import SearchResult
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.space import Space, with_profile
from tuccl.tuning.guaranteed_minimum import CLEAR_GAIN, KeyRatio
from tuccl.tuning.spending import Fresh

Measure = Callable[[Task, Config, int], Measured]
"""`measure(task, config, repeats)`: the first `repeats` samples, and the seconds of all of them."""

_FIRST_LOOK = 1
"""Samples of every call."""
_SECOND_LOOK = 3
"""Samples of calls near the best."""
_CLOSE_LOOK = 11
"""Samples of the best call, where it is hardly faster than stock NCCL."""
_CLOSE = 1.02
"""Ratio of stock NCCL's time to the best call's below which a close look is taken."""
_NEAR = 1.08
"""A call this many times slower than the best gets no second look."""
_HOPELESS = 1.5
"""A call this many times slower than the best under the first profile is not tried under others."""
_FAR_BEHIND = 2.0
"""An algorithm and protocol this many times slower than the best, with the fewest, middle and most
channels, is not looked at further. The fastest call's pair was never more than 1.2 times slower in
18,000 measured calls on four H200 and 2,000 over TCP, where this leaves out half of the time. On
modelled A100 the fewest and the most alone would have left out the best."""
_FAR_BEHIND_AT_MIDDLE = 2.5
"""One this many times slower than the best, each with its middle number of channels, is not looked
at with others. The pair of the fastest call was never more than 1.22 times slower there, in 540
groups of calls on four H200 and 130 over TCP, where this leaves out 29 % of the visit's time."""
_CALLS_PER_KEY = 4
"""Most of a key's best calls that later visits and searches start from."""
_MOST_CALLS = 96
"""Most calls of a key under the first profile; stock NCCL has 22 to 50."""
_TOLERATED_LOSS = 0.01
"""Loss against stock NCCL that carries no extra weight."""
_LOSS_WEIGHT = 5.0
"""Extra weight of a key's loss beyond the tolerated loss."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The times of all keys under a profile."""

    profile: ProcessProfile
    best: Mapping[Task, tuple[Config, float]]
    """Fastest call and its time in us, by key; keys where no call ran are missing."""
    gain: float
    """Weighted mean over keys of log(stock / best), losses counted more."""
    error: float
    """Standard error of the gain, from the spread of the samples."""
    speedup: float
    """Weighted geometric mean over keys of stock / best; 0 where a key cannot run."""
    keys: tuple[KeyRatio, ...] = ()
    """Ratios of what a job gets for all keys, with bounds that allow for the deviation of other
    starts: a schedule's ratio where one serves the key, else that of NCCL's best call."""
    without_executor: tuple[KeyRatio, ...] = ()
    """Ratios of NCCL's best call for keys that schedules serve."""


@dataclass
class Visitor:
    """Visits profiles one after another; later visits use the times of earlier ones."""

    spaces: Mapping[Task, Space]
    measure: Measure
    stock_us: Mapping[Task, float]
    weights: Mapping[Task, float] = field(default_factory=dict)
    """Weight of each key; 1 where none is given."""
    times: dict[Task, dict[Config, float]] = field(default_factory=dict)
    """Median times in us by key and call, under any profile."""
    served: Mapping[Task, KeyRatio] = field(default_factory=dict)
    """Ratios of schedules that serve keys: under any profile inside a node, under stock NCCL's
    across hosts."""
    first_s: Mapping[Task, float] = field(default_factory=dict)
    """Seconds that the first visit may take for each key; no limit where none is given."""
    fresh: Fresh | None = None
    """Takes samples that were not returned before; None: none can be had."""
    fault: Callable[[Task, Config], str] = lambda _task, _config: ""
    """Why a call does not run or delivers wrong data; empty where it is right."""
    stock_faults: Collection[Task] = ()
    """Keys of which stock NCCL delivers wrong data, the smallest of each reduction at most."""
    hopeless: dict[Task, set[Config]] = field(default_factory=dict)
    """Calls by key, without a profile, that are not tried again."""
    visits: list[Visit] = field(default_factory=list)

    def visit(self, profile: ProcessProfile) -> Visit:
        """Time all keys under a profile."""
        best: dict[Task, tuple[Config, float]] = {}
        errors: dict[Task, float] = {}
        for task, space in self.spaces.items():
            if self.visits and profile.settings and self._refuses(task, profile):
                break
            found = self._look(task, self._calls(task, with_profile(space, profile), profile))
            if found:
                config = min(found, key=lambda config: (found[config], config))
                samples_us = self._samples_us(task, config)
                time_us = self.times[task][config] = median(samples_us)
                best[task] = (config, time_us)
                errors[task] = log_deviation(samples_us) / math.sqrt(len(samples_us))
        speedup = (
            math.exp(self._mean(best, losses_weigh=False)) if len(best) == len(self.spaces) else 0.0
        )
        gain = self._mean(best, losses_weigh=True) if speedup else -math.inf
        by_nccl = self._keys(best, errors)
        # A key that NCCL cannot run is served by none.
        served = self._served(profile)
        others = tuple(key for key in by_nccl if key.task in served and key.ratio)
        keys = tuple(served[key.task] if key in others else key for key in by_nccl)
        self.visits.append(Visit(profile, best, gain, self._error(errors), speedup, keys, others))
        return self.visits[-1]

    def wrong_data(self, profile: ProcessProfile) -> str:
        """Return the first key whose data NCCL's own choice gets wrong under a profile, and how.

        That is what runs in a job wherever the table has no entry. Calls of entries are checked
        when they win. A profile is not blamed for reductions that stock NCCL gets wrong.
        """
        known = {(task.operation, task.shape) for task in self.stock_faults}
        tasks = (task for task in self.spaces if (task.operation, task.shape) not in known)
        faults = ((task, self.fault(task, profile.default)) for task in tasks)
        said = (
            f"{task.operation} {format_size(task.size_bytes)}: {why}" for task, why in faults if why
        )
        return next(said, "")

    def _refuses(self, task: Task, profile: ProcessProfile) -> bool:
        """Whether NCCL's own choice does not run under a profile of further variables.

        Such a variable may keep NCCL from starting, which every call would find out anew.
        """
        return self._time_us(task, profile.default, _FIRST_LOOK) is None

    def _served(self, profile: ProcessProfile) -> dict[Task, KeyRatio]:
        """Ratios of the schedules that serve keys under a profile.

        Schedules that depend on it are timed again, and may serve the key no more.
        """
        served: dict[Task, KeyRatio] = {}
        for task, key in self.served.items():
            again: KeyRatio | None = key
            if key.schedule is not None and key.schedule.needs_profile:
                call = profile.applied_to(key.schedule)
                again = ratio_of_schedule(task, call, self.stock_us[task], self.measure)
            if again is not None:
                served[task] = again
        return served

    def best_calls(self, task: Task) -> list[Config]:
        """The best calls that differ in their per-call part, without a profile, fastest first."""
        times = self.times.get(task, {})
        calls: dict[Config, None] = {}
        for config in sorted(times, key=lambda config: (times[config], config)):
            calls.setdefault(ProcessProfile().applied_to(config))
        return list(calls)[:_CALLS_PER_KEY]

    def calls_under(self, profile: ProcessProfile) -> dict[Task, tuple[Config, ...]]:
        """The best calls of each key, under a profile."""
        return {task: tuple(map(profile.applied_to, self.best_calls(task))) for task in self.spaces}

    def _calls(self, task: Task, space: Space, profile: ProcessProfile) -> list[Config]:
        """NCCL's own choice, with all calls in the first visit, later the best and neighbours."""
        best = [profile.applied_to(call) for call in self.best_calls(task)]
        if not best:
            everything = space if space.size <= _MOST_CALLS else _spread(space, _MOST_CALLS)
            return list(dict.fromkeys((profile.default, *everything)))
        near = [next_to for call in best[:2] if call in space for next_to in space.neighbours(call)]
        hopeless = self.hopeless[task]
        calls = dict.fromkeys((profile.default, *best, *near))
        return [
            call
            for call in calls
            if call.is_default or (call in space and STOCK.profile.applied_to(call) not in hopeless)
        ]

    def _look(self, task: Task, configs: Sequence[Config]) -> dict[Config, float]:
        """Time all calls once and those near the best again; return the times of the latter."""
        first = self._first_look(task, configs)
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

    def _first_look(self, task: Task, configs: Sequence[Config]) -> dict[Config, float]:
        """Time calls once; of a key's many calls those worth it, while its seconds last."""
        look = _FirstLook(lambda config: self.measure(task, config, _FIRST_LOOK))
        if task in self.hopeless:
            look.at(configs)
        else:
            look.at_those_worth_it(configs, self.first_s.get(task, math.inf))
        return look.times_us

    def _time_us(self, task: Task, config: Config, repeats: int) -> float | None:
        try:
            return median(self.measure(task, config, repeats).samples_us)
        except ConfigurationFailedError:
            return None

    def _samples_us(self, task: Task, config: Config) -> tuple[float, ...]:
        """Samples of a key's best call, more of them where it is hardly faster than stock NCCL."""
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

    def _mean(self, best: Mapping[Task, tuple[Config, float]], *, losses_weigh: bool) -> float:
        logs = {task: math.log(self.stock_us[task] / best[task][1]) for task in self.spaces}
        return weighted_gain(logs, self.weights, logs if losses_weigh else ())


def weighted_gain(
    logs: Mapping[Task, float], weights: Mapping[Task, float], losing: Collection[Task] = ()
) -> float:
    """Return the weighted mean of the logarithms of gains.

    Args:
        logs: By key.
        weights: Weight of each key; 1 where none is given.
        losing: Keys whose loss weighs more, because no job is only an average.
    """
    total = 0.0
    for task, log in logs.items():
        loss = min(0.0, log + _TOLERATED_LOSS) if task in losing else 0.0
        total += weights.get(task, 1.0) * (log + _LOSS_WEIGHT * loss)
    return total / sum(weights.get(task, 1.0) for task in logs)


@dataclass
class _FirstLook:
    """One sample of a key's calls; those that do not run are left out."""

    measure: Callable[[Config], Measured]
    times_us: dict[Config, float] = field(default_factory=dict)
    seconds: float = 0.0
    """Seconds of what ran."""
    _seen: set[Config] = field(default_factory=set)

    def at(self, configs: Sequence[Config], limit_s: float = math.inf) -> None:
        """Time those calls that are new, while all seconds are below the limit."""
        for config in configs:
            if config in self._seen or self.seconds >= limit_s:
                continue
            self._seen.add(config)
            with suppress(ConfigurationFailedError):
                measured = self.measure(config)
                self.times_us[config] = median(measured.samples_us)
                self.seconds += measured.seconds

    def at_those_worth_it(self, configs: Sequence[Config], further_s: float) -> None:
        """Time a few calls of each algorithm and protocol, and the rest of those not far behind.

        Args:
            configs: All calls.
            further_s: Seconds that the rest may take.
        """
        pairs: dict[tuple[str, str], list[Config]] = {}
        for config in configs:
            pairs.setdefault((config.algorithm, config.protocol), []).append(config)
        middles = {pair: _middle(own) for pair, own in pairs.items()}
        self.at(list(middles.values()))
        limit_us = _FAR_BEHIND_AT_MIDDLE * self._best_us()
        for pair, own in pairs.items():
            # One that does not run there may run with fewer channels.
            if self.times_us.get(middles[pair], 0.0) <= limit_us:
                self.at(_sampled(own))
        limit_us = _FAR_BEHIND * self._best_us()
        limit_s = self.seconds + further_s
        for own in pairs.values():
            if any(self.times_us.get(end, math.inf) <= limit_us for end in _sampled(own)):
                self.at(own, limit_s)

    def _best_us(self) -> float:
        return min(self.times_us.values(), default=math.inf)


def _sampled(pair: Sequence[Config]) -> list[Config]:
    """The calls of an algorithm and protocol with the fewest, middle and most channels."""
    by_channels = _by_channels(pair)
    return list(dict.fromkeys((by_channels[0], _middle(pair), by_channels[-1])))


def _middle(pair: Sequence[Config]) -> Config:
    return _by_channels(pair)[len(pair) // 2]


def _by_channels(pair: Sequence[Config]) -> list[Config]:
    return sorted(pair, key=lambda config: config.nchannels)


def _spread(space: Space, count: int) -> list[Config]:
    """`count` configurations at equal distances in a space."""
    configs = list(space)
    return [configs[index * len(configs) // count] for index in range(count)]


def ratio_of_schedule(
    task: Task, config: Config, stock_us: float, measure: Measure
) -> KeyRatio | None:
    """Ratio of a schedule, with bounds that allow for other starts; None where it does not serve.

    It serves a key where it runs and its lower bound is above `CLEAR_GAIN`.
    """
    try:
        samples_us = measure(task, config, _CLOSE_LOOK).samples_us
    except ConfigurationFailedError:
        return None
    if len(samples_us) < _CLOSE_LOOK:
        return None
    ratio = stock_us / median(samples_us)
    spread = log_deviation(samples_us)
    error = math.sqrt(2.0 / len(samples_us)) * spread  # Stock's samples have one of the same size.
    bounds = interval_of_two_starts(ratio, error, spread)
    key = KeyRatio(task, ratio, bounds.low, bounds.high, schedule=config)
    return key if key.low > CLEAR_GAIN else None


_TRIED = 2
"""Schedules of a key that are examined, in case the first is wrong."""


def served_keys(
    found: Mapping[Task, SearchResult],
    stock_us: Mapping[Task, float],
    measure: Measure,
    is_right: Callable[[Task, Config], bool],
) -> dict[Task, KeyRatio]:
    """Return ratios of stock NCCL's time over a schedule's, for keys that the schedule serves.

    The race compares process profiles with the guaranteed minimum, which counts what a job gets. If
    a schedule serves a key that is the schedule's time, so the race has to know these keys. The
    search of schedules therefore begins before it, with a few samples per key, and is continued
    afterwards. A schedule serves a key if it delivers the right data and its lower bound is above
    `CLEAR_GAIN`, with the deviation that profiles are allowed in one start. Schedules across hosts
    call NCCL, so each visit of a profile times them again.

    Args:
        found: Searches of schedules by key.
        stock_us: Stock NCCL's time by key.
        measure: Takes samples.
        is_right: Whether a call delivers the right data.
    """
    served = {}
    for task, result in found.items():
        for ranked in islice(result.ranking, _TRIED):
            key = ratio_of_schedule(task, ranked.config, stock_us[task], measure)
            if key is not None and is_right(task, ranked.config):
                served[task] = key
                break
    return served
