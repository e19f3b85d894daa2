"""Symmetries of a sketch: rank permutations under which nothing changes.

A permutation counts when it maps nodes onto nodes, every edge onto an edge of the same kind, alpha
and bandwidth, and the ports of every edge, in travel order, onto the ports of its image, by one
mapping of ports that is one to one and keeps bandwidths. Then the image of a schedule is a schedule
that takes equally long, and a synthesizer may solve for one representative (TACCL section 4.1 has
such maps written by hand, its sketch files call them `symmetry_offsets`).

Permutations are proposed, not searched for: rotations inside blocks of ranks, as TACCL's, and
exclusive or for hypercube meshes such as DGX-1's. Each is then verified in full, so what is
returned is right, though there can be more. Bandwidths and alphas count as equal within
`EQUAL_WITHIN`, which absorbs measuring noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

import networkx as nx

from sketches.sketch import Edge, Sketch

EQUAL_WITHIN = 0.05
"""Relative difference up to which two measured figures are taken for the same."""

Permutation = tuple[int, ...]


def find_symmetries(sketch: Sketch) -> tuple[Permutation, ...]:
    """Verified permutations, each of which makes more ranks alike than those before it.

    A permutation that joins no further ranks is left out: a schedule that obeys a larger group than
    needed gains nothing, and may not exist.
    """
    found: list[Permutation] = []
    orbit = list(range(sketch.ranks))
    for candidate in _candidates(sketch):
        joined = _join(orbit, candidate)
        if joined != orbit and is_symmetry(sketch, candidate):
            found.append(candidate)
            orbit = joined
    return tuple(found)


def is_symmetry(sketch: Sketch, permutation: Permutation) -> bool:
    """Whether a rank permutation maps the sketch, its nodes and its ports onto themselves."""
    if sorted(permutation) != list(range(sketch.ranks)):
        return False
    nodes: dict[int, int] = {}
    for rank, image in enumerate(permutation):
        node = sketch.node_of_rank[image]
        if nodes.setdefault(sketch.node_of_rank[rank], node) != node:
            return False
    if len(set(nodes.values())) != len(nodes):
        return False
    port_image: dict[str, str] = {}
    for edge in sketch.edges:
        image_edge = sketch.edge.get((permutation[edge.src], permutation[edge.dst]))
        if image_edge is None or not _alike(edge, image_edge):
            return False
        for port, image_port in zip(edge.ports, image_edge.ports, strict=True):
            if port_image.setdefault(port, image_port) != image_port:
                return False
    return len(set(port_image.values())) == len(port_image) and all(
        _equal(sketch.port[port].bandwidth_gb_per_s, sketch.port[image].bandwidth_gb_per_s)
        for port, image in port_image.items()
    )


def _alike(edge: Edge, other: Edge) -> bool:
    return (
        edge.kind is other.kind
        and len(edge.ports) == len(other.ports)
        and _equal(edge.alpha_us, other.alpha_us)
        and _equal(edge.bandwidth_gb_per_s, other.bandwidth_gb_per_s)
    )


def _equal(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=EQUAL_WITHIN)


def _candidates(sketch: Sketch) -> Iterator[Permutation]:
    """Rotation of nodes; in all nodes at once: rotations, largest blocks first, exclusive or."""
    ranks = sketch.ranks
    nodes = max(sketch.node_of_rank) + 1
    per_node = ranks // nodes
    if any(node != rank // per_node for rank, node in enumerate(sketch.node_of_rank)):
        return
    if nodes > 1:
        yield tuple((rank + per_node) % ranks for rank in range(ranks))
    for block in reversed(_divisors(per_node)):
        for offset in _divisors(block):
            if offset < block:
                yield tuple(_rotate(rank, block, offset) for rank in range(ranks))
    if per_node & (per_node - 1) == 0:
        for mask in range(1, per_node):
            yield tuple(rank ^ mask for rank in range(ranks))


def _rotate(rank: int, block: int, offset: int) -> int:
    return rank // block * block + (rank + offset) % block


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _join(orbit: list[int], permutation: Permutation) -> list[int]:
    """Least rank of every rank's orbit once the permutation counts too."""
    graph: nx.Graph[int] = nx.Graph(enumerate(orbit))
    graph.add_edges_from(enumerate(permutation))
    joined = list(orbit)
    for component in nx.connected_components(graph):
        least = min(component)
        for rank in component:
            joined[rank] = least
    return joined
