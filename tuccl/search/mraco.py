"""MRACO: synchronous Hyperband brackets fed by one TPE (TuCCL section III-D).

A bracket proposes a batch, measures all of it a little, keeps the best share and measures those
longer; a paused configuration resumes, it is not measured anew. What leaves a bracket is told to
the model once, at the best fidelity it had there. After each pass over the brackets (a cycle) the
elites are measured at full budget, and the search stops when equation 5 holds twice in a row: the
gain since the last cycle is under 1 % and the elite's parameter distributions moved by less than
0.1 in Kullback-Leibler divergence.

The search is deterministic: the seed and the measurements decide everything, so a run that was
killed repeats its steps from the measurement log at no measuring cost and goes on from there.
Deviations from the printed Algorithm 1 are in docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tuccl.search.config import Config
from tuccl.search.hyperband import Bracket, hyperband_plan
from tuccl.search.space import Space
from tuccl.search.tpe import TpeProposer

Measure = Callable[[Config, int], tuple[float, ...]]
"""`measure(config, repeats)`: the first `repeats` samples, in us."""


@dataclass(frozen=True, slots=True)
class MracoOptions:
    """How hard to search."""

    max_repeats: int = 27
    eta: int = 3
    min_repeats: int = 1
    max_cycles: int = 4
    elites: int = 3
    """Configurations measured at full budget at the end of a cycle."""
    min_gain: float = 0.01
    max_divergence: float = 0.1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Ranked:
    """A configuration with what was measured of it."""

    config: Config
    time_us: float
    """Median of its samples."""
    samples: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found."""

    ranking: tuple[Ranked, ...]
    """Configurations measured at full budget, the fastest first; never empty."""
    configs_tried: int
    repeats_measured: int
    cycles: int
    converged: bool


class _Trials:
    """What has been measured so far."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._samples: dict[Config, tuple[float, ...]] = {}

    def reach(self, config: Config, repeats: int) -> float:
        if len(self._samples.get(config, ())) < repeats:
            self._samples[config] = self._measure(config, repeats)
        return self.time_us(config)

    def time_us(self, config: Config) -> float:
        return median(self._samples[config])

    @property
    def configs(self) -> list[Config]:
        return list(self._samples)

    @property
    def repeats(self) -> int:
        return sum(len(samples) for samples in self._samples.values())

    def count(self, config: Config) -> int:
        return len(self._samples[config])

    def best(self, count: int) -> list[Config]:
        """Fastest first; of equals the one that is smaller as a value."""
        return sorted(self._samples, key=lambda config: (self.time_us(config), config))[:count]


def search(
    space: Space, measure: Measure, options: MracoOptions, warm: Sequence[Config] = ()
) -> SearchResult:
    """Find the fastest configuration of a space.

    Args:
        space: What may be proposed.
        measure: Gives the first so many samples of a configuration.
        options: Budget, halving rate, stopping rule, seed.
        warm: Configurations to try first, such as the elites of a neighbouring size.
    """
    proposer = TpeProposer(space, options.seed)
    trials = _Trials(measure)
    brackets = hyperband_plan(options.max_repeats, options.eta, options.min_repeats)
    waiting = [config for config in warm if config in space]
    previous: tuple[float, np.ndarray] | None = None
    calm_cycles = cycles = 0
    while cycles < options.max_cycles and calm_cycles < 2 and not proposer.exhausted:
        for bracket in brackets:
            _run_bracket(bracket, proposer, trials, waiting)
            waiting = [config for config in waiting if config not in trials.configs]
        best_us = _measure_elites(trials, options)
        marginals = _elite_marginals(space, trials)
        if previous is not None:
            gain = previous[0] / best_us - 1.0
            divergence = _divergence(marginals, previous[1])
            calm = gain < options.min_gain and divergence < options.max_divergence
            calm_cycles = calm_cycles + 1 if calm else 0
        previous = (best_us, marginals)
        cycles += 1
    full = [c for c in trials.best(len(trials.configs)) if trials.count(c) >= options.max_repeats]
    ranking = tuple(Ranked(c, trials.time_us(c), trials.count(c)) for c in full)
    return SearchResult(
        ranking=ranking,
        configs_tried=len(trials.configs),
        repeats_measured=trials.repeats,
        cycles=cycles,
        converged=calm_cycles >= 2 or proposer.exhausted,
    )


def _run_bracket(
    bracket: Bracket, proposer: TpeProposer, trials: _Trials, warm: Sequence[Config]
) -> None:
    batch = proposer.propose(bracket.rungs[0].configs, warm)
    survivors = batch
    for rung in bracket.rungs:
        survivors = survivors[: rung.configs]
        for config in survivors:
            trials.reach(config, rung.repeats)
        survivors = sorted(survivors, key=lambda config: (trials.time_us(config), config))
    for config in batch:
        proposer.tell(config, trials.time_us(config))


def _measure_elites(trials: _Trials, options: MracoOptions) -> float:
    """Measure the best at full budget until the best ones all are; their fastest time in us.

    A configuration that looked best on few samples often is not (winner's curse), so the top is
    looked at again after each measurement.
    """
    for _ in range(2 * options.elites):
        thin = [c for c in trials.best(options.elites) if trials.count(c) < options.max_repeats]
        if not thin:
            break
        trials.reach(thin[0], options.max_repeats)
    full = [c for c in trials.configs if trials.count(c) >= options.max_repeats]
    return min(trials.time_us(config) for config in full)


def _elite_marginals(space: Space, trials: _Trials, share: float = 0.15) -> np.ndarray:
    """Smoothed distribution of the elite over family and each axis.

    Returns:
        4 x m matrix, a row per dimension, padded with zeros to the longest axis.
    """
    lengths = (len(space.families), *space.longest_axes)
    counts = np.zeros((4, max(lengths)))
    for config in trials.best(max(4, round(share * len(trials.configs)))):
        family, positions = space.positions(config)
        for row, position in enumerate((family, *positions)):
            counts[row, position] += 1.0
    for row, length in enumerate(lengths):
        counts[row, :length] += 0.5
    marginals: np.ndarray = counts / counts.sum(axis=1, keepdims=True)
    return marginals


def _divergence(new: np.ndarray, old: np.ndarray) -> float:
    """Kullback-Leibler divergence of the marginals, summed over the dimensions (equation 5)."""
    present = new > 0
    return float(np.sum(new[present] * np.log(new[present] / old[present])))
