"""Routes: the trees along which chunks spread from their source, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from synthesizer.solve.orbits import Orbit, Permutation
from synthesizer.solve.resources import Hop, Resources


@dataclass(frozen=True, slots=True)
class RouteTree:
    """Hops of one chunk from its source, each after the hop that brings the chunk to its sender."""

    source: int
    hops: tuple[Hop, ...]

    def image(self, permutation: Permutation) -> RouteTree:
        """The same tree for another member of the orbit."""
        hops = tuple((permutation[a], permutation[b]) for a, b in self.hops)
        return RouteTree(permutation[self.source], hops)

    def arrivals_us(self, costs: Resources) -> dict[int, float]:
        """When each rank has the chunk, if nothing else were on its way."""
        arrival = {self.source: 0.0}
        for a, b in self.hops:
            arrival[b] = arrival[a] + costs.latency_us[a, b]
        return arrival


def tree_from_hops(source: int, hops: Iterable[Hop]) -> RouteTree:
    """A tree with its hops in travel order."""
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
    """A tree to be found for a representative source; its images serve the rest of the orbit."""

    orbit: Orbit
    index: int
    """Which of the source's trees."""

    def image_hops(self, hop: Hop) -> tuple[Hop, ...]:
        """What all images of the tree do where the representative's does `hop`."""
        return tuple((image[hop[0]], image[hop[1]]) for image in self.orbit.images)


def expand(trees: Mapping[Family, RouteTree]) -> tuple[RouteTree, ...]:
    """All trees of all sources, ordered by source, then by index."""
    images = [
        (image[family.orbit.representative], family.index, tree.image(image))
        for family, tree in trees.items()
        for image in family.orbit.images
    ]
    return tuple(tree for _, _, tree in sorted(images, key=lambda item: item[:2]))


def least_time_us(trees: Sequence[RouteTree], costs: Resources) -> float:
    """No order of these trees' hops ends sooner: the busiest resource, the longest way."""
    loads = costs.loads_us(hop for tree in trees for hop in tree.hops)
    longest = max(max(tree.arrivals_us(costs).values()) for tree in trees)
    return max(costs.least_time_us(loads), longest)
