"""Edges, ports and ranks of a sketch that its symmetries make alike.

By convexity an optimal flow may be averaged over the symmetries, so a linear program needs one
variable per orbit of edges and one row per orbit of ports. Where measured figures inside an orbit
differ a little, the orbit counts with the largest: bounds stay bounds.
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
    """A partition of a sketch's edges, with what one member of each part may carry."""

    sketch: Sketch
    orbit: tuple[int, ...]
    """Number of the orbit of every edge, in the order of `Sketch.edges`."""
    sizes: tuple[int, ...]
    capacity_gb_per_s: tuple[float, ...]
    """Of one edge of the orbit."""
    rank_leaders: tuple[int, ...]
    """The least rank of every orbit of ranks."""

    @cached_property
    def port_rows(self) -> tuple[tuple[dict[int, int], float], ...]:
        """For one port of each kind: how many edges of each orbit pass it, and its bandwidth."""
        users: dict[str, list[int]] = {port.name: [] for port in self.sketch.ports}
        for number, edge in enumerate(self.sketch.edges):
            for name in edge.ports:
                users[name].append(number)
        # Ports on the same edges stand one behind the other: the narrowest counts. Ports on
        # edges that a symmetry makes alike stand for each other: the widest counts.
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
        """How many edges of each orbit leave a set of ranks."""
        return dict(
            Counter(
                orbit
                for edge, orbit in zip(self.sketch.edges, self.orbit, strict=True)
                if edge.src in members and edge.dst not in members
            )
        )


def edge_orbits(sketch: Sketch, *, symmetric: bool = True) -> EdgeOrbits:
    """Orbits under the sketch's symmetries; each edge is its own when `symmetric` is False."""
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


def _leaders(count: int, same: Iterable[tuple[int, int]]) -> list[int]:
    """Union-find: the least member of every element's part."""
    parent = list(range(count))

    def find(element: int) -> int:
        while parent[element] != element:
            parent[element] = parent[parent[element]]
            element = parent[element]
        return element

    for one, other in same:
        a, b = find(one), find(other)
        parent[max(a, b)] = min(a, b)
    return [find(element) for element in range(count)]
