"""Orbits of a sketch's edges, ports and ranks under its symmetries.

By convexity an optimal flow may be averaged over the symmetries, so a linear program needs one
variable per orbit of edges and one row per orbit of ports. Where measured bandwidths inside an
orbit differ a little, the orbit takes the largest, so that a bound stays a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf

from sketches.sketch import Sketch


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

    @cached_property
    def port_rows(self) -> tuple[tuple[dict[int, int], float], ...]:
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
        widest: dict[tuple[tuple[int, int], ...], float] = {}
        for edges, bandwidth in narrowest.items():
            key = tuple(sorted(Counter(self.orbit[edge] for edge in edges).items()))
            widest[key] = max(widest.get(key, 0.0), bandwidth)
        return tuple((dict(key), bandwidth) for key, bandwidth in widest.items() if key)

    def crossing(self, members: frozenset[int]) -> dict[int, int]:
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
    leader = _leaders(
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
    ranks = _leaders(
        sketch.ranks,
        (pair for generator in generators for pair in enumerate(generator)),
    )
    return EdgeOrbits(
        sketch,
        orbit,
        tuple(sizes[number] for number in range(len(number_of))),
        tuple(capacity),
        tuple(sorted(set(ranks))),
    )


def _leaders(count: int, equivalent: Iterable[tuple[int, int]]) -> list[int]:
    """Return the least member of every element's class, by union-find."""
    parent = list(range(count))

    def find(element: int) -> int:
        while parent[element] != element:
            parent[element] = parent[parent[element]]
            element = parent[element]
        return element

    for left, right in equivalent:
        a, b = find(left), find(right)
        parent[max(a, b)] = min(a, b)
    return [find(element) for element in range(count)]
