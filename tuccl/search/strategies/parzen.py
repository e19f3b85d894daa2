"""The sampler of TuCCL's equations 2 and 3, for `algorithm-1` alone.

With performances eta_i (here reciprocal times) of the configurations x_i measured so far,

    l(x) = sum over eta_i < eta* of exp(-|x - x_i|^2 / (2 sigma_p^2))       (equation 2)
    next = argmax over x of g(x) / l(x) * (mu_g - mu_l)                     (equation 3)

where l is the density of the slow and g that of the fast. mu_g - mu_l, the distance of their mean
performances, is positive and the same for every x, so it never changes the argmax.

The paper leaves open, and here is chosen:

- eta*: the fastest 15 % are fast (Bergstra et al., "Algorithms for Hyper-Parameter Optimization",
  NIPS 2011), at least one; a failure has performance 0.
- g(x): the sum of equation 2 over eta_i >= eta*.
- |x - x_i|: axes are scaled to 0 to 1 by position; another algorithm or protocol adds 1 to the
  square.
- sigma_p: the protocol is that of x_i. Of its values the paper says that LL128's is wider.
- Several configurations at a time: the n of the largest values, none that was proposed before.
- Before there are fast and slow ones: uniform draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

import numpy as np

from lookup_tables.table import NcclProtocol
from tuccl.search.strategies.tpe import Unseen
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Space

_FAST_SHARE = 0.15
"""Share of the measured configurations that g is made of."""
_SIGMA = 0.1
_SIGMA_OF = {NcclProtocol.LL128.value: 2 * _SIGMA}


class ParzenSampler:
    """Samples configurations of a space, each at most once."""

    def __init__(self, space: Space, seed: int) -> None:
        """A sampler without history; the seed is that of the uniform draws."""
        self._rng = np.random.default_rng(seed)
        self._families, positions = space.coordinates
        steps = np.maximum(np.array(space.longest_axes) - 1, 1)
        self._points = positions / steps
        self._row_of = space.row_of
        self._times_us: dict[Config, float] = {}
        self._exponents: dict[Config, np.ndarray] = {}
        """For each measured configuration the exponents of its kernel, a value for each row."""
        self._unseen = Unseen(space, seed)

    @property
    def exhausted(self) -> bool:
        """Whether every configuration was sampled."""
        return not self._unseen

    def take(self, configs: Iterable[Config]) -> list[Config]:
        """Those of them that were not sampled yet, now counted as sampled."""
        return [config for config in configs if self._unseen.take(config)]

    def sample(self, count: int) -> list[Config]:
        """The next `count` configurations, fewer where the space ends."""
        count = min(count, len(self._unseen))
        fast, slow = fast_and_slow(self._times_us)
        if not slow:
            return [self._uniform() for _ in range(count)]
        ratio = self._log_density(fast) - self._log_density(slow)
        return self.take(self._unseen.highest(ratio, count))

    def tell(self, config: Config, time_us: float) -> None:
        """Report what a configuration reached; an infinite time is a failure."""
        self._times_us[config] = time_us
        if config not in self._exponents:
            row = self._row_of[config]
            squares = ((self._points - self._points[row]) ** 2).sum(axis=1)
            squares += self._families != self._families[row]
            sigma = _SIGMA_OF.get(config.protocol, _SIGMA)
            self._exponents[config] = -squares / (2 * sigma**2)

    def _uniform(self) -> Config:
        config = self._unseen.uniform(self._rng)
        self._unseen.take(config)
        return config

    def _log_density(self, measured: list[Config]) -> np.ndarray:
        """Logarithm of equation 2's sum, for every configuration of the space.

        In logarithms, because far from all that was measured both sums underflow.
        """
        exponents = np.stack([self._exponents[config] for config in measured])
        largest = exponents.max(axis=0)
        density: np.ndarray = largest + np.log(np.exp(exponents - largest).sum(axis=0))
        return density


def fast_and_slow(times_us: Mapping[Config, float]) -> tuple[list[Config], list[Config]]:
    """Configurations on both sides of eta*; all are fast where none is slower than another."""
    ranked = sorted(times_us.values())
    border_us = ranked[ceil(_FAST_SHARE * len(ranked)) - 1] if ranked else 0.0
    fast = [config for config, time_us in times_us.items() if time_us <= border_us]
    slow = [config for config, time_us in times_us.items() if time_us > border_us]
    return fast, slow
