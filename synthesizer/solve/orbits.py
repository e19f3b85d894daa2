"""Orbits of ranks under a sketch's symmetries: one member is solved, the rest are its images.

Symmetry is substituted, not constrained: variables exist only for the representative, and the load
of a resource sums the loads of all images of its tree.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sketches.sketch import Sketch

Permutation = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Orbit:
    """A representative rank, and for each rank of its orbit one permutation that maps it there."""

    representative: int
    images: tuple[Permutation, ...]
    """Permutations, the identity first."""


def single(rank: int, ranks: int) -> Orbit:
    """Return the orbit of a rank that is equivalent to no other."""
    return Orbit(rank, (tuple(range(ranks)),))


def rank_orbits(sketch: Sketch) -> tuple[Orbit, ...]:
    """Return the orbits of all ranks under the group that the sketch's symmetries generate."""
    identity: Permutation = tuple(range(sketch.ranks))
    reached: set[int] = set()
    orbits = []
    for rank in range(sketch.ranks):
        if rank in reached:
            continue
        leads = {rank: identity}
        queue = deque([rank])
        while queue:
            member = queue.popleft()
            for generator in sketch.symmetries:
                image = generator[member]
                if image not in leads:
                    leads[image] = tuple(generator[rank] for rank in leads[member])
                    queue.append(image)
        reached.update(leads)
        orbits.append(Orbit(rank, tuple(leads[member] for member in leads)))
    return tuple(orbits)
