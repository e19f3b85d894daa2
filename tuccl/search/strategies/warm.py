"""`Warm`: a search that begins where an earlier one ended, for keys that are tuned again.

What was best before, and what a model expects to be best now, is timed a few times; where nothing
is known, the middle of each family. From the fastest it moves along one axis at a time as long as
it gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lookup_tables.table import Entry, Shape
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.opening import middles
from tuccl.search.strategies.strategy import Stop
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.search.trials.space import AXES, Space

_MOST_FIRST = 8
"""Most configurations to begin with."""
_LOOK = 3
"""Samples of a configuration."""
_MOST_MOVES = 4
"""Most moves from the fastest of the first configurations."""


class Warm:
    """The first configurations, then neighbours of the fastest."""

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:  # noqa: ARG002 - the protocol's
        """See `Strategy.explore`."""
        for config in list(dict.fromkeys(first))[:_MOST_FIRST] or middles(space):
            meter.reach(config, _LOOK)
        for _ in range(_MOST_MOVES):
            # NCCL's own choice has nothing beside it.
            tried = [config for config in meter.configs if not config.is_default]
            if not tried:
                break
            fastest = min(tried, key=lambda config: (meter.time_us(config), config))
            for axis in range(len(AXES)):
                for config in _beside(space, fastest, axis):
                    meter.reach(config, _LOOK)
            found = [config for config in meter.configs if not config.is_default]
            if min(map(meter.time_us, found)) >= meter.time_us(fastest):
                break
        return Stop.EXHAUSTED


def _beside(space: Space, config: Config, axis: int) -> list[Config]:
    """Return the configurations one step away along an axis."""
    line = space.line(config, axis)
    here = line.index(config)
    return line[max(0, here - 1) : here] + line[here + 1 : here + 2]


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Keys to tune again, and the configurations to begin with."""

    profile: ProcessProfile
    """Process profile of the earlier table, which stays."""
    tasks: tuple[Task, ...]
    """Keys to tune again, in the order of a run."""
    contenders: Mapping[Task, tuple[Config, ...]]
    """Configurations of the earlier run to try first, under its profile, the best first."""
    before: Mapping[Task, tuple[Config, ...]]
    """Choices of jobs under the earlier table: the winner, then those where it cannot run."""
    kept: Mapping[tuple[Shape, Placement], tuple[Entry, ...]] = field(default_factory=dict)
    """Entries of communicators that are not measured again, by their shape and where they sit."""

    def contenders_of(self, task: Task) -> tuple[Config, ...]:
        """Return the configurations to try first for a key, wherever its ranks sit."""
        return self.contenders.get(replace(task, placement=ANYWHERE), ())
