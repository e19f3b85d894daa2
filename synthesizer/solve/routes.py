"""Routes: the trees along which chunks spread from their source, and their costs.

Symmetric ranks form an orbit: one member is solved, the rest are its images. Symmetry is
substituted, not constrained: variables exist only for the representative, and the load of a
resource sums the loads of all images of its tree.

Every port is a resource that serves one transfer at a time, and so is every edge that is narrower
than its ports (for other edges a port is always busier). A transfer occupies all of its edge's
resources, each for bytes / bandwidth; so several edges share a NIC in time (TuCCL section III-B).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sketches.sketch import Sketch
from tuccl.errors import InfeasibleError

Hop = tuple[int, int]
"""Sender and receiver of a transfer."""

_BYTES_PER_US = 1e3
"""Bytes per microsecond in one GB/s."""


@dataclass(frozen=True)
class Resources:
    """Costs of a sketch's edges in microseconds, for chunks of a given size."""

    names: tuple[str, ...]
    busy_us: tuple[float, ...]
    """Time that one chunk occupies each resource."""
    least_alpha_us: tuple[float, ...]
    """Least alpha of the edges that use each resource."""
    of_edge: dict[Hop, tuple[int, ...]]
    """Resources of each edge."""
    latency_us: dict[Hop, float]
    """Alpha plus the chunk's time on the narrowest resource of each edge."""

    def loads_us(self, hops: Iterable[Hop]) -> list[float]:
        """Return the time for which the given hops occupy each resource."""
        loads = [0.0] * len(self.names)
        for hop in hops:
            for resource in self.of_edge[hop]:
                loads[resource] += self.busy_us[resource]
        return loads

    def least_time_us(self, loads: Iterable[float]) -> float:
        """Return a lower bound on the time: the busiest resource, and its last chunk's alpha."""
        pairs = zip(loads, self.least_alpha_us, strict=True)
        return max((load + alpha for load, alpha in pairs if load > 0), default=0.0)


def resources(sketch: Sketch, chunk_bytes: float) -> Resources:
    """Return the resources of a sketch with their costs for one chunk."""
    names = [port.name for port in sketch.ports]
    widths = [port.bandwidth_gb_per_s for port in sketch.ports]
    number = {name: i for i, name in enumerate(names)}
    of_edge: dict[Hop, tuple[int, ...]] = {}
    alphas: list[list[float]] = [[] for _ in names]
    for key, edge in sorted(sketch.edge.items()):
        used = [number[port] for port in dict.fromkeys(edge.ports)]
        if all(edge.bandwidth_gb_per_s < widths[port] for port in used):
            used.append(len(names))
            names.append(f"{edge.src}->{edge.dst}")
            widths.append(edge.bandwidth_gb_per_s)
            alphas.append([])
        for resource in used:
            alphas[resource].append(edge.alpha_us)
        of_edge[key] = tuple(used)
    busy = tuple(chunk_bytes / (width * _BYTES_PER_US) for width in widths)
    return Resources(
        tuple(names),
        busy,
        tuple(min(found, default=0.0) for found in alphas),
        of_edge,
        {
            key: sketch.edge[key].alpha_us + max(busy[resource] for resource in used)
            for key, used in of_edge.items()
        },
    )


def require_connected(sketch: Sketch, ends: Iterable[int], *, towards: bool = False) -> None:
    """Check that each of `ends` reaches every rank, or is reached from every rank (`towards`).

    Raises:
        InfeasibleError: No path connects two ranks; the message names the first such pair.
    """
    onward: dict[int, list[int]] = {}
    for a, b in sketch.edge:
        first, then = (b, a) if towards else (a, b)
        onward.setdefault(first, []).append(then)
    for end in ends:
        reached = {end}
        queue = [end]
        for rank in queue:
            new = [peer for peer in onward.get(rank, ()) if peer not in reached]
            reached.update(new)
            queue += new
        missing = [rank for rank in range(sketch.ranks) if rank not in reached]
        if missing:
            a, b = (missing[0], end) if towards else (end, missing[0])
            raise InfeasibleError(
                f"sketch {sketch.name} has no path from rank {a} to rank {b};"
                " use a sketch that connects them"
            )


def reversed_sketch(sketch: Sketch) -> Sketch:
    """Return the sketch with every edge reversed, ports included."""
    reversed_edges = (
        replace(edge, src=edge.dst, dst=edge.src, ports=edge.ports[::-1]) for edge in sketch.edges
    )
    return replace(
        sketch, edges=tuple(sorted(reversed_edges, key=lambda edge: (edge.src, edge.dst)))
    )


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
