"""Plain strategies to compare MRACO with: grid, random, TPE, and TPE under Optuna's Hyperband.

They are given what costs nothing: no configuration is measured twice, warm configurations come
first. The plain ones measure every configuration with the same number of repetitions, the full
budget unless `repeats` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna

from tuccl.search.strategies.hyperband import rung_repeats
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.strategy import Stop
from tuccl.search.strategies.tpe import TpeProposer
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Space


@dataclass(frozen=True, slots=True)
class Grid:
    """Every configuration, in the order of the space."""

    repeats: int = 0
    """Repetitions of each configuration; 0: the full budget."""

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:  # noqa: ARG002 - the protocol's
        """See `Strategy.explore`."""
        for config in dict.fromkeys((*first, *space.configs)):
            meter.reach(config, self.repeats or meter.max_repeats)
        return Stop.EXHAUSTED


@dataclass(frozen=True, slots=True)
class Random:
    """Every configuration, in random order."""

    repeats: int = 0
    """Repetitions of each configuration; 0: the full budget."""

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """See `Strategy.explore`."""
        order = np.random.default_rng(seed).permutation(space.size)
        for config in dict.fromkeys((*first, *(space.configs[row] for row in order))):
            meter.reach(config, self.repeats or meter.max_repeats)
        return Stop.EXHAUSTED


@dataclass(frozen=True, slots=True)
class Tpe:
    """Optuna's TPE as it comes, but for duplicates."""

    repeats: int = 0
    """Repetitions of each configuration; 0: the full budget."""

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """See `Strategy.explore`."""
        proposer = TpeProposer(space, seed)

        def measure(config: Config) -> None:
            proposer.tell(config, meter.reach(config, self.repeats or meter.max_repeats))

        return _ask_and_tell(proposer, first, measure)


@dataclass(frozen=True, slots=True)
class OptunaHyperband:
    """Optuna's TPE with its `HyperbandPruner`.

    The pruner deals each trial to a bracket by a hash of its number, the sampler sees the trials of
    that bracket alone, and what was pruned is never taken up again.
    """

    eta: int = 3

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """See `Strategy.explore`."""
        pruner = optuna.pruners.HyperbandPruner(
            min_resource=1, max_resource=meter.max_repeats, reduction_factor=self.eta
        )
        proposer = TpeProposer(space, seed, pruner)
        steps = rung_repeats(meter.max_repeats, self.eta)

        def measure(config: Config) -> None:
            trial = proposer.trial(config)
            for step in steps:
                time_us = meter.reach(config, step)
                if math.isinf(time_us):
                    break
                trial.report(math.log(time_us), step)
                if step < meter.max_repeats and trial.should_prune():
                    proposer.prune(config)
                    return
            proposer.tell(config, meter.time_us(config))

        return _ask_and_tell(proposer, first, measure)


def _ask_and_tell(
    proposer: TpeProposer, first: Sequence[Config], measure: Callable[[Config], None]
) -> Stop:
    for config in proposer.take(first):
        measure(config)
    while not proposer.exhausted:
        measure(proposer.propose())
    return Stop.EXHAUSTED
