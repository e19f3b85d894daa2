"""Equation 5 of TuCCL: whether another cycle of a search still brings something.

Both conditions, in two cycles running: the gain since the last cycle is small, and the elite's
parameters are distributed as they were. One cycle says little: the divergence wanders.
"""

from __future__ import annotations

import numpy as np

from tuccl.search.strategies.final_choice import best_confirmed_us
from tuccl.search.strategies.meter import Meter
from tuccl.search.trials.space import Space

_ELITE_SHARE = 0.15
_CYCLES = 2


class Convergence:
    """Told after each cycle."""

    def __init__(self, min_gain: float, max_divergence: float) -> None:
        """Nothing seen yet."""
        self._min_gain = min_gain
        self._max_divergence = max_divergence
        self._previous: tuple[float, np.ndarray] | None = None
        self._calm = 0

    def reached(self, space: Space, meter: Meter) -> bool:
        """Whether the last cycles, this one included, brought nothing."""
        best_us, marginals = best_confirmed_us(meter), elite_marginals(space, meter)
        if self._previous is not None:
            gain = self._previous[0] / best_us - 1.0
            moved = divergence(marginals, self._previous[1])
            calm = gain < self._min_gain and moved < self._max_divergence
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
