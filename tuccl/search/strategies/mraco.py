"""MRACO: synchronous Hyperband brackets fed by one TPE (TuCCL section III-D).

The search begins with one sample of each family. A bracket proposes a batch, measures all of it a
little, keeps the best share and measures those longer; a paused configuration resumes, it is not
measured anew, and one that is behind the best by more than the noise can explain is not measured
longer at all. What leaves a bracket is told to the model once, at the best fidelity it had there.
Around the best configuration of every family near the lead each axis is tried at doubling
distances, before the first bracket and after each pass over the brackets (a cycle). Then the elites
are measured at full budget, and the search stops when equation 5 holds twice in a row: the gain
since the last cycle is under 1 % and the elite's parameter distributions moved by less than 0.1 in
Kullback-Leibler divergence.

The search is deterministic: the seed and the measurements decide everything, so a run that was
killed repeats its steps from the measurement log at no measuring cost and goes on from there.
Deviations from the printed Algorithm 1 are in docs/reference/deviations.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuccl.search.strategies.final_choice import best_confirmed_us, confirm_elites
from tuccl.search.strategies.hyperband import Rung, hyperband_plan, rung_repeats
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.opening import opening, star
from tuccl.search.strategies.strategy import Stop
from tuccl.search.strategies.tpe import TpeProposer
from tuccl.search.trials.config import Config, ProcessProfile
from tuccl.search.trials.events import RungBegins
from tuccl.search.trials.space import Space

_ELITE_SHARE = 0.15
_CYCLES = 2
"""Cycles running that must bring nothing."""

_CYCLE_CONFIGS = 40
"""Hyperband's plan has 49 for a full budget of 27 repetitions, but 5 for one of 5."""
_LEADS_WITHIN = 1.05
"""Times the best: a family that is further behind is left to the model."""


ETA = 3
"""Of Hyperband: the share that stays is one of so many."""
_UNIFORM_SHARE = 0.15
"""Share of the proposals drawn uniformly, so that no region starves."""
_NEIGHBOUR_SHARE = 0.25
"""Share of the proposals next to one of the elites."""
_ELITES = 6
"""Configurations whose neighbourhood is tried."""
_HOPELESS_ERRORS = 3.0
"""Standard errors behind the best at which a configuration is not measured longer."""
_KNOWN_ERROR = 0.005
"""Relative standard error at which more samples of a configuration teach nothing, until it is an
elite: on a machine with little noise one sample does."""
_MIN_GAIN = 0.01
_MAX_DIVERGENCE = 0.1


@dataclass(frozen=True)
class Mraco:
    """The strategy `mraco`."""

    max_cycles: int = 1000

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """See `Strategy.explore`."""
        return _Search(space, meter, self.max_cycles, seed).run(first)


class _Search:
    """One run."""

    def __init__(self, space: Space, meter: Meter, max_cycles: int, seed: int) -> None:
        self._space = space
        self._meter = meter
        self._max_cycles = max_cycles
        self._rng = np.random.default_rng(seed)
        self._proposer = TpeProposer(space, seed)
        self._brackets = hyperband_plan(meter.max_repeats, ETA)

    def run(self, first: Sequence[Config]) -> Stop:
        convergence = Convergence(_MIN_GAIN, _MAX_DIVERGENCE)
        # Once each: more samples, to tell them apart, would take the place of better configurations
        # where the budget is small.
        begin = self._proposer.take([*first, *opening(self._space)])
        self._climb("first configurations", begin, [Rung(len(begin), 1)])
        self._polish()
        for _ in range(self._max_cycles):
            self._cycle()
            self._polish()
            confirm_elites(self._meter)
            if self._proposer.exhausted:
                return Stop.EXHAUSTED
            if convergence.reached(self._space, self._meter):
                return Stop.CONVERGED
        return Stop.CYCLES

    def _cycle(self) -> None:
        """All brackets, over again until the pass has seen enough to be called one."""
        tried = self._meter.tried
        while self._meter.tried < tried + _CYCLE_CONFIGS and not self._proposer.exhausted:
            for number, bracket in enumerate(self._brackets, 1):
                part = f"bracket {number} of {len(self._brackets)}"
                self._climb(part, self._batch(bracket.rungs[0].configs), bracket.rungs)

    def _batch(self, count: int) -> list[Config]:
        """New configurations from the model, next to the elites, and uniform."""
        batch: list[Config] = []
        elites = self._meter.best(_ELITES)
        while len(batch) < count and not self._proposer.exhausted:
            draw = self._rng.random()
            if draw < _UNIFORM_SHARE:
                batch += self._proposer.take([self._proposer.unseen.uniform(self._rng)])
            elif elites and draw < _UNIFORM_SHARE + _NEIGHBOUR_SHARE:
                elite = elites[int(self._rng.integers(len(elites)))]
                batch += self._proposer.take([self._proposer.unseen.near(elite)])
            else:
                batch.append(self._proposer.propose())
        return batch

    def _polish(self) -> None:
        """Try the axes of each family's best until none leads to a better one."""
        polished: set[Config] = set()
        while waiting := [config for config in self._leaders() if config not in polished]:
            polished.add(waiting[0])
            self._race("neighbours of a leader", star(self._space, waiting[0]))

    def _leaders(self) -> list[Config]:
        """The fastest of each family that is not far behind the best, fastest first."""
        leaders: dict[tuple[str, str], Config] = {}
        for config in self._meter.best(len(self._meter.configs)):
            if self._meter.time_us(config) > _LEADS_WITHIN * self._meter.best_us:
                break
            leaders.setdefault((config.algorithm, config.protocol), config)
        return list(leaders.values())

    def _race(self, part: str, configs: Iterable[Config]) -> None:
        """A bracket of given configurations: all of them a little, the best share longer."""
        batch = self._proposer.take(configs)
        rungs = [Rung(len(batch), 1)]
        while rungs[-1].repeats < self._meter.max_repeats and rungs[-1].configs > 1:
            configs_left = -(-rungs[-1].configs // ETA)
            repeats = min(rungs[-1].repeats * ETA, self._meter.max_repeats)
            rungs.append(Rung(configs_left, repeats))
        self._climb(part, batch, rungs)

    def _climb(self, part: str, batch: Sequence[Config], rungs: Sequence[Rung]) -> None:
        survivors = list(batch)
        for number, rung in enumerate(rungs, 1):
            survivors = survivors[: rung.configs]
            if survivors:
                event = RungBegins(part, number, len(rungs), len(survivors), rung.repeats)
                self._meter.watch(event)
            for config in _by_profile(survivors):
                self._reach(config, rung.repeats)
            survivors.sort(key=lambda config: (self._meter.time_us(config), config))
        for config in batch:
            self._proposer.tell(config, self._meter.time_us(config))

    def _reach(self, config: Config, repeats: int) -> None:
        """Measure in growing steps, and stop if it is hopeless or known well enough."""
        for step in rung_repeats(repeats, ETA):
            if math.isinf(self._meter.reach(config, step)):
                return
            bound_us = self._meter.bound_us(config, -_HOPELESS_ERRORS)
            known = self._meter.error(step) <= _KNOWN_ERROR
            if known or bound_us > self._meter.best_us:
                return


def _by_profile(configs: Sequence[Config]) -> list[Config]:
    """Those of one process profile together, so that the workers restart once for each."""
    order: dict[ProcessProfile, list[Config]] = {}
    for config in configs:
        order.setdefault(config.profile, []).append(config)
    return [config for group in order.values() for config in group]


@dataclass
class Convergence:
    """Equation 5 of TuCCL: whether another cycle of a search still brings something.

    Both conditions hold in two cycles running: the gain since the last cycle is small, and the
    elite's parameters are distributed as they were. One cycle says little: the divergence wanders.
    """

    min_gain: float
    max_divergence: float
    _previous: tuple[float, np.ndarray] | None = None
    _calm: int = 0

    def reached(self, space: Space, meter: Meter) -> bool:
        """Whether the last cycles, this one included, brought nothing."""
        best_us, marginals = best_confirmed_us(meter), elite_marginals(space, meter)
        if self._previous is not None:
            gain = self._previous[0] / best_us - 1.0
            moved = divergence(marginals, self._previous[1])
            calm = gain < self.min_gain and moved < self.max_divergence
            self._calm = self._calm + 1 if calm else 0
        self._previous = (best_us, marginals)
        return self._calm >= _CYCLES


def elite_marginals(space: Space, meter: Meter) -> np.ndarray:
    """Smoothed distribution of the elite over family and each axis.

    Returns:
        A row per dimension, padded with zeros to the longest axis.
    """
    lengths = (len(space.families), *space.longest_axes)
    counts = np.zeros((len(lengths), max(lengths)))
    for config in meter.best(max(4, round(_ELITE_SHARE * len(meter.configs)))):
        family, positions = space.positions(config)
        for row, position in enumerate((family, *positions)):
            counts[row, position] += 1.0
    for row, length in enumerate(lengths):
        counts[row, :length] += 0.5
    marginals: np.ndarray = counts / counts.sum(axis=1, keepdims=True)
    return marginals


def divergence(new: np.ndarray, old: np.ndarray) -> float:
    """Kullback-Leibler divergence of the marginals, summed over the dimensions."""
    present = new > 0
    return float(np.sum(new[present] * np.log(new[present] / old[present])))
