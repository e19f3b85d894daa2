"""Routes: the trees along which chunks spread from their source, and their costs.

Symmetric ranks form an orbit: one member is solved, the rest are its images. Symmetry is
substituted, not constrained: variables exist only for the representative, and the load of a
resource sums the loads of all images of its tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sketches.sketch import Sketch
from synthesizer.solve.resources import Hop, Resources

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


@dataclass(frozen=True, slots=True)
class RouteTree:
    """Hops of one chunk from its source, each after the hop by which its sender receives it."""

    source: int
    hops: tuple[Hop, ...]

    def image(self, permutation: Permutation) -> RouteTree:
        """Return the tree of another member of the orbit."""
        hops = tuple((permutation[a], permutation[b]) for a, b in self.hops)
        return RouteTree(permutation[self.source], hops)

    def arrivals_us(self, costs: Resources) -> dict[int, float]:
        """Return when each rank has the chunk if no other transfer interferes."""
        arrival = {self.source: 0.0}
        for a, b in self.hops:
            arrival[b] = arrival[a] + costs.latency_us[a, b]
        return arrival


def tree_from_hops(source: int, hops: Iterable[Hop]) -> RouteTree:
    """Return a tree with its hops in travel order."""
    onward: dict[int, list[int]] = {}
    for a, b in sorted(hops):
        onward.setdefault(a, []).append(b)
    ordered: list[Hop] = []
    reached = [source]
    for rank in reached:
        for child in onward.get(rank, ()):
            ordered.append((rank, child))
            reached.append(child)
    return RouteTree(source, tuple(ordered))


@dataclass(frozen=True, slots=True)
class Family:
    """A tree to find for a representative source; its images serve the rest of the orbit."""

    orbit: Orbit
    index: int
    """Index among the source's trees."""

    def image_hops(self, hop: Hop) -> tuple[Hop, ...]:
        """Return the images of a hop of the representative's tree."""
        return tuple((image[hop[0]], image[hop[1]]) for image in self.orbit.images)


def expand(trees: Mapping[Family, RouteTree]) -> tuple[RouteTree, ...]:
    """Return all trees of all sources, ordered by source, then by index."""
    images = [
        (image[family.orbit.representative], family.index, tree.image(image))
        for family, tree in trees.items()
        for image in family.orbit.images
    ]
    return tuple(tree for _, _, tree in sorted(images, key=lambda item: item[:2]))


def least_time_us(trees: Sequence[RouteTree], costs: Resources) -> float:
    """Return a lower bound on the time of these trees: the busiest resource, the longest path."""
    loads = costs.loads_us(hop for tree in trees for hop in tree.hops)
    longest = max(max(tree.arrivals_us(costs).values()) for tree in trees)
    return max(costs.least_time_us(loads), longest)
