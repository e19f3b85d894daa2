"""Coordinate descent after AutoCCL (Xu et al., NSDI 2025, section 4).

Every pair of algorithm and protocol is a subspace of its own, in which one parameter at a time is
followed downhill until none leads lower. AutoCCL starts at a random place; here a subspace starts
at the fastest of NCCL's own values, the middle of the axes, and its warm configurations, and the
subspaces come in the order of how fast they start. What budget is left then goes to random starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.opening import middles, opening
from tuccl.search.strategies.strategy import Stop
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import AXES, Space


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The strategy `coordinate`."""

    repeats: int = 0
    """Repetitions of each configuration; 0: the full budget."""

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """See `Strategy.explore`."""
        repeats = self.repeats or meter.max_repeats
        starts: dict[tuple[str, str], Config] = {}
        for config in (*first, *opening(space), *middles(space)):
            meter.reach(config, repeats)
            family = (config.algorithm, config.protocol)
            fastest = starts.setdefault(family, config)
            if meter.time_us(config) < meter.time_us(fastest):
                starts[family] = config
        for start in sorted(starts.values(), key=lambda config: (meter.time_us(config), config)):
            _descend(space, meter, start, repeats)
        for row in np.random.default_rng(seed).permutation(space.size):
            start = space.configs[row]
            if meter.count(start) == 0 and start not in meter.failures:
                meter.reach(start, repeats)
                _descend(space, meter, start, repeats)
        return Stop.EXHAUSTED


def _descend(space: Space, meter: Meter, start: Config, repeats: int) -> None:
    """Follow one axis after the other downhill until a round over all of them moves nothing."""
    best = start
    moved = True
    while moved:
        moved = False
        for axis in range(len(AXES)):
            lower = _lowest(space, meter, best, axis, repeats)
            moved = moved or lower != best
            best = lower


def _lowest(space: Space, meter: Meter, start: Config, axis: int, repeats: int) -> Config:
    """From `start` along one axis, in the direction that falls, until it rises."""
    line = space.line(start, axis)
    best = place = line.index(start)
    for step in (1, -1):
        here = place + step
        while 0 <= here < len(line):
            if meter.reach(line[here], repeats) >= meter.time_us(line[best]):
                break
            best = here
            here += step
        if best != place:
            break
    return line[best]
