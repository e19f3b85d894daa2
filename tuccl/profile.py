"""The process profile: settings that NCCL reads once per process, one set for the whole table.

`NCCL_NTHREADS` and `NCCL_BUFFSIZE` cannot change from call to call in any NCCL, so all keys of a
table share them. The profile is chosen over all keys by the product of their times, each key taking
its best per-call choice under the profile, and may not cost any key more than it would have with
stock NCCL beyond a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from lookup_tables.table import NcclProtocol
from tuccl.search.config import DEFAULT_ALGORITHM, STOCK, Config, Task

Measure = Callable[[Task, Config, int], tuple[float, ...]]
"""`measure(task, config, repeats)`: samples in us."""

_REPEATS = 9
_CALLS_PER_KEY = 4
"""Per-call choices of a key that are tried under each profile."""
_MIN_GAIN = 0.002
"""Geometric mean gain over all keys below which a variable is left alone."""
_MAX_LOSS = 0.01
"""What a profile may cost any single key against stock NCCL."""


@dataclass(frozen=True, slots=True, order=True)
class ProcessProfile:
    """Values of the per-process variables; 0 leaves NCCL's own."""

    nthreads: int = 0
    buffer_bytes: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Variables to export."""
        values = {"NCCL_BUFFSIZE": self.buffer_bytes, "NCCL_NTHREADS": self.nthreads}
        return {name: str(value) for name, value in values.items() if value}

    @property
    def default(self) -> Config:
        """NCCL's own choice under this profile."""
        return Config(DEFAULT_ALGORITHM, nthreads=self.nthreads, buffer_bytes=self.buffer_bytes)

    def applied_to(self, config: Config) -> Config:
        """The same per-call choice of a built-in algorithm under this profile."""
        simple = config.protocol == NcclProtocol.SIMPLE
        ll128 = config.protocol == NcclProtocol.LL128
        return replace(
            config,
            nthreads=0 if ll128 else self.nthreads,
            buffer_bytes=self.buffer_bytes if simple else 0,
        )


def choose_profile(rankings: Mapping[Task, Sequence[Config]], measure: Measure) -> ProcessProfile:
    """The profile with the best geometric mean over all keys.

    Coordinate descent over the values that the keys' own winners use, from stock: the gain of a
    variable is counted with everything else as chosen so far.

    Args:
        rankings: By key, built-in configurations of a search without a common profile, best first.
        measure: Gives samples.
    """
    choices = {task: _distinct_calls(configs) for task, configs in rankings.items()}
    stock_us = {task: median(measure(task, STOCK, _REPEATS)) for task in choices}

    def score(profile: ProcessProfile) -> float:
        total = 0.0
        for task, calls in choices.items():
            tried = [profile.default, *(profile.applied_to(call) for call in calls)]
            time_us = min(median(measure(task, config, _REPEATS)) for config in tried)
            if time_us > stock_us[task] * (1.0 + _MAX_LOSS):
                return math.inf
            total += math.log(time_us)
        return total / len(choices)

    best, best_score = ProcessProfile(), score(ProcessProfile())
    seen = [config for configs in rankings.values() for config in configs[:_CALLS_PER_KEY]]
    for variable in ("nthreads", "buffer_bytes", "nthreads"):
        for value in sorted({getattr(config, variable) for config in seen}):
            candidate = replace(best, **{variable: value})
            candidate_score = score(candidate)
            if candidate_score < best_score - _MIN_GAIN:
                best, best_score = candidate, candidate_score
    return best


def _distinct_calls(configs: Sequence[Config]) -> list[Config]:
    """The first few that differ in what is chosen per call."""
    calls: dict[tuple[str, str, int], Config] = {}
    for config in configs:
        calls.setdefault((config.algorithm, config.protocol, config.nchannels), config)
    return list(calls.values())[:_CALLS_PER_KEY]
