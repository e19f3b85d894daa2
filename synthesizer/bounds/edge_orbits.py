"""Orbits of a sketch's edges, ports and ranks under its symmetries.

By convexity an optimal flow may be averaged over the symmetries, so a linear program needs one
variable per orbit of edges and one row per orbit of ports. Where measured bandwidths inside an
orbit differ a little, the orbit takes the largest, so that a bound stays a bound. `FlowProgram` is
that program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import highspy
import numpy as np

from sketches.sketch import Sketch
from sketches.symmetry import least_of_classes
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

    def require(self, demand: float, carriers: Mapping[int, float]) -> None:
        """Require a flow on `carriers` of at least `demand` times the rate."""
        if demand > 0:
            self._add_row(0.0, highspy.kHighsInf, {**carriers, self._rate: -demand})

    def require_pairs(self, orbits: EdgeOrbits) -> None:
        """Require that every rank sends the rate to each other rank, over flows of its own.

        The sources of an orbit share the flows of its leader, an equal part for each of them.
        """
        edges = orbits.sketch.edges
        carried: list[dict[int, float]] = [{} for _ in orbits.sizes]
        for leader, sources in zip(orbits.rank_leaders, orbits.rank_counts, strict=True):
            kept: list[dict[int, float]] = [{} for _ in range(orbits.sketch.ranks)]
            for edge, orbit in zip(edges, orbits.orbit, strict=True):
                flow = self._solver.getNumCol()
                self._solver.addVar(0.0, highspy.kHighsInf)
                carried[orbit][flow] = -float(sources)
                kept[edge.src][flow] = -1.0
                kept[edge.dst][flow] = 1.0
            for rank, balance in enumerate(kept):
                if rank != leader:
                    self._add_row(0.0, highspy.kHighsInf, {**balance, self._rate: -1.0})
        for orbit, flows in enumerate(carried):
            self._add_row(0.0, highspy.kHighsInf, {**flows, orbit: float(orbits.sizes[orbit])})

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


@dataclass(frozen=True)
class EdgeOrbits:
    """A partition of a sketch's edges into orbits, with the capacity of one edge of each."""

    sketch: Sketch
    orbit: tuple[int, ...]
    """Orbit number of every edge, in the order of `Sketch.edges`."""
    sizes: tuple[int, ...]
    capacity_gb_per_s: tuple[float, ...]
    """Capacity of one edge of each orbit."""
    rank_leaders: tuple[int, ...]
    """The least rank of every orbit of ranks."""
    rank_counts: tuple[int, ...]
    """Number of ranks of each of these orbits."""

    @cached_property
    def port_rows(self) -> tuple[tuple[dict[int, float], float], ...]:
        """Edges of each orbit that use a port, and its bandwidth, for one port per orbit."""
        users: dict[str, list[int]] = {port.name: [] for port in self.sketch.ports}
        for number, edge in enumerate(self.sketch.edges):
            for name in edge.ports:
                users[name].append(number)
        # Ports used by the same edges are in series: the narrowest counts. Ports of one orbit
        # share a row: the widest counts.
        narrowest: dict[tuple[int, ...], float] = {}
        for port in self.sketch.ports:
            edges = tuple(users[port.name])
            narrowest[edges] = min(narrowest.get(edges, inf), port.bandwidth_gb_per_s)
        widest: dict[tuple[tuple[int, float], ...], float] = {}
        for edges, bandwidth in narrowest.items():
            key = tuple(sorted(self.passing(edges).items()))
            widest[key] = max(widest.get(key, 0.0), bandwidth)
        return tuple((dict(key), bandwidth) for key, bandwidth in widest.items() if key)

    def passing(self, numbers: Sequence[int]) -> dict[int, float]:
        """Count the edges of each orbit among those that use a port, by their numbers."""
        return dict(Counter(self.orbit[number] for number in numbers))

    def crossing(self, members: frozenset[int]) -> dict[int, float]:
        """Count the edges of each orbit that leave a set of ranks."""
        return dict(
            Counter(
                orbit
                for edge, orbit in zip(self.sketch.edges, self.orbit, strict=True)
                if edge.src in members and edge.dst not in members
            )
        )


def edge_orbits(sketch: Sketch, *, symmetric: bool = True) -> EdgeOrbits:
    """Return the orbits under the sketch's symmetries; single edges if not `symmetric`."""
    generators = sketch.symmetries if symmetric else ()
    index = {(edge.src, edge.dst): number for number, edge in enumerate(sketch.edges)}
    leader = least_of_classes(
        len(sketch.edges),
        (
            (number, index[generator[edge.src], generator[edge.dst]])
            for generator in generators
            for number, edge in enumerate(sketch.edges)
        ),
    )
    number_of = {edge: number for number, edge in enumerate(dict.fromkeys(leader))}
    orbit = tuple(number_of[edge] for edge in leader)
    capacity = [0.0] * len(number_of)
    for edge, number in zip(sketch.edges, orbit, strict=True):
        capacity[number] = max(capacity[number], edge.bandwidth_gb_per_s)
    sizes = Counter(orbit)
    ranks = least_of_classes(
        sketch.ranks,
        (pair for generator in generators for pair in enumerate(generator)),
    )
    return EdgeOrbits(
        sketch,
        orbit,
        tuple(sizes[number] for number in range(len(number_of))),
        tuple(capacity),
        *zip(*sorted(Counter(ranks).items()), strict=True),
    )
