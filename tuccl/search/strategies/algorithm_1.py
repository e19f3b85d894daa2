"""TuCCL's Algorithm 1 with the sampler of its equations 2 and 3, for comparison.

The numbers of the lines are the paper's. What the paper prints is done as printed, and
docs/reference/deviations.md says what is wrong with it. What it leaves open:

- Line 5's sampler: `tuccl.search.strategies.parzen` has its choices.
- PROFILEPERF's expectation is the median of all samples that a configuration has, as for every
  strategy; line 8's division by r_i changes no order within a rung.
- The elite of line 10 is that of all that was measured, and the final choice of every strategy.
- Equation 5 does not end it: the algorithm has no line that tests it.

Three things are kinder than printed, so that it can be compared at any budget: no configuration is
sampled twice, warm ones come first, and after the last bracket the algorithm starts over with the
history that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from tuccl.search.strategies.hyperband import hyperband_plan
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.parzen import ParzenSampler
from tuccl.search.strategies.strategy import Stop
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Space


@dataclass(frozen=True, slots=True)
class Algorithm1:
    """The strategy `algorithm-1`."""

    eta: int = 3

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """See `Strategy.explore`."""
        sampler = ParzenSampler(space, seed)
        waiting = iter(sampler.take(first))
        s_max = len(hyperband_plan(meter.max_repeats, self.eta)) - 1  # line 1: as Hyperband's
        while not sampler.exhausted:
            for s in range(s_max + 1):  # line 2
                n_s = self.eta ** (s_max - s)  # line 3
                sampled = list(islice(waiting, n_s))
                sampled += sampler.sample(n_s - len(sampled))  # line 5
                self._bracket(sampled, s, meter)
                for config in sampled:
                    sampler.tell(config, meter.time_us(config))
        return Stop.EXHAUSTED

    def _bracket(self, sampled: Sequence[Config], s: int, meter: Meter) -> None:
        survivors = list(sampled)
        for i in range(s + 1):  # line 6
            repeats = max(1, meter.max_repeats // self.eta**s) * self.eta**i  # lines 4, 7
            for config in survivors:  # line 8
                _measure_anew(meter, config, repeats)
            survivors.sort(key=lambda config: (meter.time_us(config), config))
            survivors = survivors[: -(-len(sampled) // self.eta**i)]  # line 9
            for config in survivors:  # line 10
                _measure_anew(meter, config, meter.max_repeats)


def _measure_anew(meter: Meter, config: Config, repeats: int) -> None:
    """The algorithm resumes nothing: samples that a configuration has do not count."""
    meter.reach(config, meter.count(config) + repeats)
