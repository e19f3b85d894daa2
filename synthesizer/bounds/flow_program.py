"""A linear program over flows on a sketch's edges that maximises a rate."""

from __future__ import annotations

from collections.abc import Mapping

import highspy
import numpy as np

from synthesizer.bounds.edge_orbits import EdgeOrbits
from tuccl.errors import ScheduleError


class QuietHighs(highspy.Highs):
    """A solver that is silent before HiGHS prints its banner.

    From 1.16 on the constructor enables callbacks while output is still on, and the banner comes
    with that call.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.silent()
        self.setOptionValue("threads", 1)

    def enableCallbacks(self) -> None:  # noqa: N802 - the name of HiGHS
        """Enable callbacks in silence."""
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


class FlowProgram:
    """Maximises a rate over flows on edge orbits; rows can be added between solutions."""

    def __init__(self, orbits: EdgeOrbits) -> None:
        self._solver = QuietHighs()
        for capacity in orbits.capacity_gb_per_s:
            self._solver.addVar(0.0, capacity)
        self._rate = len(orbits.capacity_gb_per_s)
        self._solver.addVar(0.0, highspy.kHighsInf)
        self._solver.changeColCost(self._rate, -1.0)
        for users, bandwidth in orbits.port_rows:
            self._add_row(-highspy.kHighsInf, bandwidth, users)

    def require(self, demand: float, carriers: dict[int, int]) -> None:
        """Require a flow on `carriers` of at least `demand` times the rate."""
        if demand > 0:
            self._add_row(0.0, highspy.kHighsInf, {**carriers, self._rate: -demand})

    def solve(self) -> tuple[float, list[float]]:
        """Return the largest rate, and the flow on one edge of every orbit.

        Raises:
            ScheduleError: HiGHS fails on the program.
        """
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise ScheduleError(
                f"bandwidth bound: HiGHS ended with "
                f"{self._solver.modelStatusToString(status)} instead of an optimum"
            )
        values = list(self._solver.getSolution().col_value)
        return values[self._rate], values[: self._rate]

    def _add_row(self, least: float, most: float, coefficients: Mapping[int, float]) -> None:
        columns = np.array(list(coefficients), dtype=np.int32)
        values = np.array(list(coefficients.values()), dtype=np.float64)
        self._solver.addRow(least, most, len(columns), columns, values)
