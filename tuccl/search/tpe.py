"""Optuna's TPE behind ask and tell: one model per search, fed with every finished measurement.

No pruner is involved: `HyperbandPruner` shows the sampler only the trials of one bracket, and
`SuccessiveHalvingPruner` cannot resume a paused trial. The brackets are ours
(`tuccl.search.mraco`), the model is Optuna's. Duplicates, which TPE proposes freely, are refused
and replaced by the nearest configuration that was not tried.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import optuna

from tuccl.search.config import Config
from tuccl.search.space import Space

_AXES = ("nchannels", "nthreads", "buffer_bytes")
_STARTUP_TRIALS = 10
"""Random trials before the model has a say; Optuna's own default."""


class TpeProposer:
    """Proposes configurations of a space, each at most once."""

    def __init__(self, space: Space, seed: int, uniform_share: float = 0.15) -> None:
        """A proposer with its own random state.

        Args:
            space: What may be proposed.
            seed: Of the model and of the uniform share.
            uniform_share: Share of proposals drawn uniformly, so that no region starves.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._uniform_share = uniform_share
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)
        self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._distributions = _distributions(space)
        self._open: dict[Config, optuna.Trial] = {}
        self._seen: set[Config] = set()

    @property
    def exhausted(self) -> bool:
        """Whether every configuration was proposed."""
        return len(self._seen) >= self._space.size

    def propose(self, count: int, first: Iterable[Config] = ()) -> list[Config]:
        """Up to `count` new configurations, those of `first` before the model's."""
        batch: list[Config] = []
        for config in first:
            if len(batch) < count and config in self._space and config not in self._seen:
                self._accept(config, batch)
        while len(batch) < count and not self.exhausted:
            if self._rng.random() < self._uniform_share:
                self._accept(self._unseen_near(self._space.random(self._rng)), batch)
                continue
            trial = self._study.ask(self._distributions)
            config = _config_of(self._space, trial.params)
            if config in self._seen or not self._is_exact(trial, config):
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
                self._accept(self._unseen_near(config), batch)
            else:
                self._seen.add(config)
                self._open[config] = trial
                batch.append(config)
        return batch

    def tell(self, config: Config, time_us: float) -> None:
        """Report what a proposed configuration reached; the model sees its logarithm."""
        self._study.tell(self._open.pop(config), float(np.log(time_us)))

    def _accept(self, config: Config, batch: list[Config]) -> None:
        self._study.enqueue_trial(_params_of(self._space, config))
        self._seen.add(config)
        self._open[config] = self._study.ask(self._distributions)
        batch.append(config)

    def _is_exact(self, trial: optuna.Trial, config: Config) -> bool:
        return trial.params == _params_of(self._space, config)

    def _unseen_near(self, start: Config) -> Config:
        """Breadth-first from `start` to the first configuration that was not proposed."""
        frontier, reached = [start], {start}
        while frontier:
            config = frontier.pop(0)
            if config not in self._seen:
                return config
            for neighbour in self._space.neighbours(config):
                if neighbour not in reached:
                    reached.add(neighbour)
                    frontier.append(neighbour)
        return next(config for config in self._space if config not in self._seen)


def _distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        "family": optuna.distributions.CategoricalDistribution(tuple(range(len(space.families))))
    }
    for axis, length in zip(_AXES, space.longest_axes, strict=True):
        distributions[axis] = optuna.distributions.IntDistribution(0, length - 1)
    return distributions


def _config_of(space: Space, params: dict[str, int]) -> Config:
    return space.families[params["family"]].at([params[axis] for axis in _AXES])


def _params_of(space: Space, config: Config) -> dict[str, int]:
    family, positions = space.positions(config)
    return {"family": family, **dict(zip(_AXES, positions, strict=True))}
