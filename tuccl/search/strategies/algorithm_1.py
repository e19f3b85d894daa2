"""TuCCL's Algorithm 1 to the letter, for comparison.

The numbers of the lines are the paper's. Where the paper leaves a choice, the kinder one is taken:
configurations are not proposed twice, warm ones come first, and after the last bracket the
algorithm starts over with the model that it has, so that it can be compared with others at any
budget. docs/reference/deviations.md says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from tuccl.search.strategies.hyperband import hyperband_plan
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.strategy import Stop
from tuccl.search.strategies.tpe import TpeProposer
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Space


@dataclass(frozen=True, slots=True)
class Algorithm1:
    """The strategy `algorithm-1`."""

    eta: int = 3

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """See `Strategy.explore`."""
        proposer = TpeProposer(space, seed)
        waiting = iter(proposer.take(first))
        s_max = len(hyperband_plan(meter.max_repeats, self.eta)) - 1  # line 1: as Hyperband's
        while not proposer.exhausted:
            for s in range(s_max + 1):  # line 2
                sampled = list(islice(waiting, self.eta ** (s_max - s)))  # lines 3, 5
                while len(sampled) < self.eta ** (s_max - s) and not proposer.exhausted:
                    sampled.append(proposer.propose())
                self._bracket(sampled, s, meter)
                for config in sampled:
                    proposer.tell(config, meter.time_us(config))
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
