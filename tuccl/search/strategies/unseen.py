"""`Unseen`: the configurations of a space that a search has not proposed yet."""

from __future__ import annotations

import numpy as np

from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Space


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
        """Count a configuration as seen; False when it was, or is not in the space."""
        if config not in self:
            return False
        self._left[self._row_of[config]] = False
        self._count -= 1
        return True

    def near(self, start: Config) -> Config:
        """The nearest configuration left: steps along the axes, another family counts one.

        Raises:
            ValueError: when nothing is left.
        """
        if not self._count:
            raise ValueError(f"every configuration of {self._space.name} was proposed")
        family, positions = self._space.positions(start)
        steps = np.abs(self._positions - np.array(positions)).sum(axis=1)
        distance = steps + (self._families != family) + self._ties
        return self._configs[int(np.where(self._left, distance, np.inf).argmin())]

    def uniform(self, rng: np.random.Generator) -> Config:
        """Any of them.

        Raises:
            ValueError: when nothing is left.
        """
        return self._configs[int(rng.choice(np.flatnonzero(self._left)))]
