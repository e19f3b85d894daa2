"""The process profile: settings that NCCL reads once per process, one set for the whole table.

`NCCL_NTHREADS` and `NCCL_BUFFSIZE` cannot change from call to call in any NCCL, so all keys of a
table share them. The profile is chosen over all keys by the product of their times, each key taking
its best per-call choice under the profile, and may not cost any key more than it would have with
stock NCCL beyond a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from tuccl.decision import PAIRS, lower_bound_of_median
from tuccl.search.config import STOCK, Config, ProcessProfile, Task

Measure = Callable[[Task, Config, int], tuple[float, ...]]
"""`measure(task, config, repeats)`: samples in us."""

_REPEATS = 9
_CALLS_PER_KEY = 4
"""Per-call choices of a key that are tried under each profile."""
_MIN_GAIN = 0.002
"""Geometric mean gain over all keys below which a variable is left alone."""
_MAX_LOSS = 0.01
"""What a profile may cost any single key against stock NCCL."""


def choose_profile(
    rankings: Mapping[Task, Sequence[Config]], measure: Measure, first: int
) -> ProcessProfile:
    """The profile with the best geometric mean over all keys, if it is proved better than none.

    Coordinate descent over the values that the keys' own winners use, from stock: the gain of a
    variable is counted with everything else as chosen so far. What comes out is held against stock
    on fresh samples, pair by pair, since the best of several candidates is partly lucky.

    Args:
        rankings: By key, built-in configurations of a search without a common profile, best first.
        measure: Gives samples.
        first: Number of the first fresh sample.
    """
    calls = {task: _distinct_calls(configs) for task, configs in rankings.items()}
    stock_us = {task: median(measure(task, STOCK, _REPEATS)) for task in calls}

    def score(profile: ProcessProfile) -> float:
        total = 0.0
        for task, config in _best_calls(profile, calls, measure).items():
            time_us = median(measure(task, config, _REPEATS))
            if time_us > stock_us[task] * (1.0 + _MAX_LOSS):
                return math.inf
            total += math.log(time_us)
        return total / len(calls)

    stock = ProcessProfile()
    best, best_score = stock, score(stock)
    seen = [config for configs in rankings.values() for config in configs[:_CALLS_PER_KEY]]
    for variable in ("nthreads", "buffer_bytes", "nthreads"):
        for value in sorted({getattr(config, variable) for config in seen}):
            candidate = replace(best, **{variable: value})
            candidate_score = score(candidate)
            if candidate_score < best_score - _MIN_GAIN:
                best, best_score = candidate, candidate_score
    if best == stock or _proved_gain(best, calls, measure, first) < _MIN_GAIN:
        return stock
    return best


def _best_calls(
    profile: ProcessProfile, calls: Mapping[Task, Sequence[Config]], measure: Measure
) -> dict[Task, Config]:
    """The fastest choice of each key under a profile, NCCL's own included."""
    best: dict[Task, Config] = {}
    for task, found in calls.items():
        tried = [profile.default, *(profile.applied_to(call) for call in found)]
        times = [median(measure(task, config, _REPEATS)) for config in tried]
        best[task] = tried[times.index(min(times))]
    return best


def _proved_gain(
    profile: ProcessProfile,
    calls: Mapping[Task, Sequence[Config]],
    measure: Measure,
    first: int,
) -> float:
    """Lower confidence bound of the logarithm of the geometric mean gain over no profile."""
    with_profile = _best_calls(profile, calls, measure)
    without = _best_calls(ProcessProfile(), calls, measure)
    gains = [0.0] * PAIRS
    for task in calls:
        slow = measure(task, without[task], first + PAIRS)[first:]
        fast = measure(task, with_profile[task], first + PAIRS)[first:]
        for pair in range(PAIRS):
            gains[pair] += math.log(slow[pair] / fast[pair]) / len(calls)
    return lower_bound_of_median(gains)


def _distinct_calls(configs: Sequence[Config]) -> list[Config]:
    """The first few that differ in what is chosen per call."""
    calls: dict[tuple[str, str, int], Config] = {}
    for config in configs:
        calls.setdefault((config.algorithm, config.protocol, config.nchannels), config)
    return list(calls.values())[:_CALLS_PER_KEY]
