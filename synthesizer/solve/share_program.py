"""The linear program over the shares of trees.

The busiest resources are to be as little busy as can be, and every demand is met in full. Columns
are added as they are found.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np
from numpy.typing import NDArray

from synthesizer.bounds.edge_orbits import QuietHighs
from tuccl.errors import ScheduleError

Loads = NDArray[np.float64]
"""Time of each resource."""


_EASE = (0.5, 0.7, 0.85, 1.0, 1.2)
"""Loads of an eased resource, as shares of the busiest one's, above each of which it costs more."""

_HASTE = 0.005
"""Cost of load above each of them."""


class ShareProgram:
    """Minimises the weighted busiest resources plus the mean delay over the shares of trees.

    Each group of `resource_count` resources has a weight for its busiest one. The shares of the
    trees of each demand add up to 1. `eased_count` further resources may be busier than any, but
    cost a little, and more the busier they are.
    """

    def __init__(
        self, weights: Sequence[float], resource_count: int, demands: int, eased_count: int = 0
    ) -> None:
        self._solver = QuietHighs()
        self._busiest = len(weights)
        self._count = len(weights) * resource_count
        self._eased_count = eased_count
        for column, weight in enumerate(weights):
            self._solver.addVar(0.0, highspy.kHighsInf)
            self._solver.changeColCost(column, weight)
        for row in range(self._count):
            busiest = np.array([row // resource_count], dtype=np.int32)
            self._solver.addRow(-highspy.kHighsInf, 0.0, 1, busiest, np.array([-1.0]))
        for row in range(len(_EASE) * eased_count):
            self._solver.addVar(0.0, highspy.kHighsInf)
            self._solver.changeColCost(self._busiest + row, _HASTE)
            excess = np.array([0, self._busiest + row], dtype=np.int32)
            at_ease = np.array([-_EASE[row // eased_count], -1.0])
            self._solver.addRow(-highspy.kHighsInf, 0.0, 2, excess, at_ease)
        for _ in range(demands):
            self._solver.addRow(1.0, 1.0, 0, np.zeros(0, dtype=np.int32), np.zeros(0))

    def add(self, loads_us: Loads, delay_us: float, demand: int) -> None:
        """Add a tree by its loads if it had the whole demand, its delay and its demand.

        The loads of eased resources come last.
        """
        firm, eased = np.split(loads_us, [self._count])
        loads = np.concatenate([firm, *[eased] * len(_EASE)])
        loaded = np.flatnonzero(loads)
        rows = np.append(loaded, len(loads) + demand).astype(np.int32)
        values = np.append(loads[loaded], 1.0)
        self._solver.addCol(delay_us, 0.0, highspy.kHighsInf, len(rows), rows, values)

    def solve(self) -> tuple[float, Loads]:
        """Return the optimum and the price of each resource.

        Raises:
            ScheduleError: HiGHS fails on the program.
        """
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise ScheduleError(
                "shares of trees: HiGHS ended with "
                f"{self._solver.modelStatusToString(status)} instead of an optimum"
            )
        rows = self._count + len(_EASE) * self._eased_count
        duals = np.maximum(0.0, -np.array(self._solver.getSolution().row_dual[:rows]))
        firm, eased = np.split(duals, [self._count])
        prices = np.append(firm, eased.reshape(len(_EASE), -1).sum(axis=0))
        return self._solver.getInfo().objective_function_value, prices

    def shares(self) -> list[float]:
        """Return the share of each tree, in the order in which trees were added."""
        first = self._busiest + len(_EASE) * self._eased_count
        return list(self._solver.getSolution().col_value[first:])
