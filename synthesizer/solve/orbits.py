"""Orbits of ranks under a sketch's symmetries: solve for one member, map the solution to the rest.

Symmetry is substituted, not constrained: variables exist for the representative alone, and the
load of a resource sums what the images of its tree put on it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sketches.sketch import Sketch

Permutation = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Orbit:
    """A representative rank and, for each rank alike, one permutation that leads there."""

    representative: int
    images: tuple[Permutation, ...]
    """The identity first."""


def single(rank: int, ranks: int) -> Orbit:
    """The orbit of a rank that is alike to no other."""
    return Orbit(rank, (tuple(range(ranks)),))


def rank_orbits(sketch: Sketch) -> tuple[Orbit, ...]:
    """Orbits of all ranks under the group that the sketch's symmetries generate."""
    identity: Permutation = tuple(range(sketch.ranks))
    reached: set[int] = set()
    orbits = []
    for rank in range(sketch.ranks):
        if rank in reached:
            continue
        leads = {rank: identity}
        queue = deque([rank])
        while queue:
            here = queue.popleft()
            for generator in sketch.symmetries:
                there = generator[here]
                if there not in leads:
                    leads[there] = tuple(generator[image] for image in leads[here])
                    queue.append(there)
        reached.update(leads)
        orbits.append(Orbit(rank, tuple(leads[member] for member in leads)))
    return tuple(orbits)
