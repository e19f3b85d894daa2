"""Optuna's TPE behind ask and tell: one model per search, fed with every finished measurement.

No pruner is involved: `HyperbandPruner` shows the sampler only the trials of one bracket, and
`SuccessiveHalvingPruner` cannot resume a paused trial. The brackets are ours
(`tuccl.search.strategies.mraco`), the model is Optuna's. Duplicates, which TPE proposes freely, are
refused and replaced by the nearest configuration that was not tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import optuna

from tuccl.search.trials.config import Config
from tuccl.search.trials.space import AXES, Space

_STARTUP_TRIALS = 10
"""Random trials before the model has a say; Optuna's own default."""


class TpeProposer:
    """Proposes configurations of a space, each at most once."""

    def __init__(
        self, space: Space, seed: int, pruner: optuna.pruners.BasePruner | None = None
    ) -> None:
        """A proposer with its own random state; a pruner is for comparison only."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)
        # The pruner's brackets follow from the name: a random one would make runs differ.
        self._study = optuna.create_study(
            direction="minimize", sampler=sampler, pruner=pruner, study_name=f"seed {seed}"
        )
        self._distributions = distributions(space)
        self._open: dict[Config, optuna.Trial] = {}
        self.unseen = Unseen(space, seed)
        """Configurations not proposed yet."""

    @property
    def exhausted(self) -> bool:
        """Whether every configuration was proposed."""
        return not self.unseen

    def take(self, configs: Iterable[Config]) -> list[Config]:
        """Those of them that were not proposed yet, now counted as proposed."""
        return [config for config in configs if self.unseen.take(config)]

    def propose(self) -> Config:
        """The model's next configuration.

        Raises:
            ValueError: The space is exhausted.
        """
        trial = self._study.ask(self._distributions)
        config = config_of(self._space, trial.params)
        if config in self.unseen and trial.params == params_of(self._space, config):
            self._open[config] = trial
        else:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            config = self.unseen.near(config)
        self.unseen.take(config)
        return config

    def tell(self, config: Config, time_us: float) -> None:
        """Report what a configuration reached; the model sees the time's logarithm.

        An infinite time is a failure: the model learns nothing from it.
        """
        trial = self._open.pop(config, None)
        failed = not math.isfinite(time_us)
        if trial is not None:
            state = optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
            self._study.tell(trial, None if failed else math.log(time_us), state=state)
        elif not failed:
            self._study.add_trial(
                optuna.trial.create_trial(
                    params=params_of(self._space, config),
                    distributions=self._distributions,
                    value=math.log(time_us),
                )
            )

    def trial(self, config: Config) -> optuna.Trial:
        """The running trial of a configuration, begun now if it was not the model's own."""
        if config not in self._open:
            self._study.enqueue_trial(params_of(self._space, config))
            self._open[config] = self._study.ask(self._distributions)
        return self._open[config]

    def prune(self, config: Config) -> None:
        """End a trial where its pruner said so."""
        self._study.tell(self._open.pop(config), state=optuna.trial.TrialState.PRUNED)


def distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    """The space as Optuna sees it: the family as a label, positions on the axes as integers."""
    found: dict[str, optuna.distributions.BaseDistribution] = {}
    if len(space.families) > 1:
        labels = tuple(range(len(space.families)))
        found["family"] = optuna.distributions.CategoricalDistribution(labels)
    for axis, length in zip(AXES, space.longest_axes, strict=True):
        if length > 1:
            found[axis] = optuna.distributions.IntDistribution(0, length - 1)
    return found


def config_of(space: Space, params: dict[str, int]) -> Config:
    """The configuration that a trial means; positions beyond a family's axis mean its end."""
    return space.families[params.get("family", 0)].at([params.get(axis, 0) for axis in AXES])


def params_of(space: Space, config: Config) -> dict[str, int]:
    """The parameters of the trial that means this configuration."""
    family, positions = space.positions(config)
    params = {"family": family, **dict(zip(AXES, positions, strict=True))}
    return {name: params[name] for name in distributions(space)}


class Unseen:
    """Gives out configurations, each once."""

    def __init__(self, space: Space, seed: int) -> None:
        """All of the space.

        Args:
            space: What there is.
            seed: Decides between configurations at the same distance.
        """
        self._configs = space.configs
        self._row_of = space.row_of
        self._families, self._positions = space.coordinates
        self._space = space
        self._left = np.ones(len(self._configs), dtype=bool)
        self._count = len(self._configs)
        self._ties = np.random.default_rng(seed).uniform(0.0, 0.5, self._count)

    def __contains__(self, config: Config) -> bool:
        row = self._row_of.get(config)
        return row is not None and bool(self._left[row])

    def __len__(self) -> int:
        return self._count

    def take(self, config: Config) -> bool:
        """Count a configuration as seen; False if it was, or is not in the space."""
        if config not in self:
            return False
        self._left[self._row_of[config]] = False
        self._count -= 1
        return True

    def near(self, start: Config) -> Config:
        """The nearest configuration left: steps along the axes, another family counts one.

        Raises:
            ValueError: Nothing is left.
        """
        if not self._count:
            raise ValueError(f"every configuration of {self._space.name} was proposed")
        family, positions = self._space.positions(start)
        steps = np.abs(self._positions - np.array(positions)).sum(axis=1)
        distance = steps + (self._families != family) + self._ties
        return self._configs[int(np.where(self._left, distance, np.inf).argmin())]

    def highest(self, values: np.ndarray, count: int) -> list[Config]:
        """Those of the highest values, a value for each row of the space, highest first."""
        rows = np.argsort(np.where(self._left, -values, np.inf), kind="stable")
        return [self._configs[row] for row in rows[: min(count, self._count)]]

    def uniform(self, rng: np.random.Generator) -> Config:
        """Any of them.

        Raises:
            ValueError: Nothing is left.
        """
        return self._configs[int(rng.choice(np.flatnonzero(self._left)))]
