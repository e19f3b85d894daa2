"""Bandwidth bounds of many equal nodes, from a sketch of three of them.

For more than `MOST_SEPARATED_RANKS` ranks the linear program of `synthesizer.bounds.time_bounds`
has rows for ranks, nodes and ports alone. By convexity an optimal flow may be averaged over all
exchanges of nodes that keep these rows, so edges that an exchange maps onto each other share a
variable. An edge of the sample stands for its class: a row counts the edges of the class in it.

Without a root any nodes may be exchanged. With one, the root's node and a remote node stay, and the
middle one of the sample stands for all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import networkx as nx

from lookup_tables.collective import Collective
from sketches.equal_nodes import SAMPLED
from sketches.sketch import Edge, Sketch
from synthesizer.bounds.edge_orbits import EdgeOrbits, FlowProgram, edge_orbits

_OTHERS = 1
"""Node of the sample that stands for all but the root's and a remote one."""


def folded_bound_gb_per_s(collective: Collective, sample: Sketch, nodes: int, root: int) -> float:
    """Return the bound on the algorithm bandwidth of so many nodes.

    `root` is on the first node.

    Raises:
        ScheduleError: HiGHS fails on the linear program.
    """
    local = sample.ranks // SAMPLED
    ranks = nodes * local
    if collective.has_root:
        near = tuple(edge for edge in sample.edges if not _ends(sample, edge) <= {_OTHERS})
        plain = edge_orbits(replace(sample, edges=near), symmetric=False)
        leaders: tuple[int, ...] = (root, sample.ranks - 1)
    else:
        plain = edge_orbits(sample)
        leaders = plain.rank_leaders
    known = {each.name: getattr(plain, each.name) for each in fields(plain)}
    orbits = _FoldedOrbits(**known, nodes=nodes, rooted=collective.has_root)
    program = FlowProgram(orbits)
    if not collective.has_root:
        volume = _volume(collective, sample, nodes)
        program.require(volume * SAMPLED / nodes, orbits.classes())
        if collective.passes > 1:
            across = orbits.classes(between_nodes=True)
            program.require(2 * (nodes - 1) * SAMPLED / nodes, across)
    every = frozenset(range(sample.ranks))
    for members in _ranks_and_nodes(sample, leaders):
        size, has_root = len(members), root in members
        demand = demand_of(collective, size, ranks, has_root=has_root)
        program.require(demand, orbits.crossing(members))
        demand = demand_of(collective, ranks - size, ranks, has_root=not has_root)
        program.require(demand, orbits.crossing(every - members))
    return program.solve()[0] * collective.parts(ranks)


def demand_of(collective: Collective, size: int, ranks: int, *, has_root: bool) -> int:
    """Return the chunks, or whole buffers, that must leave a set of `size` ranks."""
    sources = int(has_root) if collective.from_root else size
    targets = int(not has_root) if collective.to_root else ranks - size
    return (sources if collective.joins else min(sources, 1)) * (
        targets if collective.splits else min(targets, 1)
    )


@dataclass(frozen=True)
class _FoldedOrbits(EdgeOrbits):
    """Orbits of a sample that count the edges for which those of the sample stand."""

    nodes: int
    rooted: bool
    """Whether the first and the last node of the sample stand for themselves alone."""

    def passing(self, numbers: Sequence[int]) -> dict[int, float]:
        """Count the edges that use a port, which belongs to the node that all of them touch."""
        ends = [_ends(self.sketch, self.sketch.edges[number]) for number in numbers]
        if not (ends and self.rooted and frozenset.intersection(*ends) == {_OTHERS}):
            return self._counted(numbers)
        return dict(Counter(self.orbit[number] for number in numbers))

    def crossing(self, members: frozenset[int]) -> dict[int, float]:
        """Count the edges that leave a set inside a node, or all other ranks."""
        edges = enumerate(self.sketch.edges)
        return self._counted(
            [number for number, edge in edges if edge.src in members and edge.dst not in members]
        )

    def classes(self, *, between_nodes: bool = False) -> dict[int, float]:
        """Count all edges of `SAMPLED` of the nodes, or those that lead to another node."""
        edges = enumerate(self.sketch.edges)
        return self._counted(
            [n for n, edge in edges if not between_nodes or len(_ends(self.sketch, edge)) > 1]
        )

    def _counted(self, numbers: Sequence[int]) -> dict[int, float]:
        counts: dict[int, float] = {}
        for number in numbers:
            ends = _ends(self.sketch, self.sketch.edges[number])
            if len(ends) == 1:
                count = 1.0
            elif not self.rooted:
                count = (self.nodes - 1) / (SAMPLED - 1)
            else:
                count = self.nodes - (SAMPLED - 1) if _OTHERS in ends else 1.0
            orbit = self.orbit[number]
            counts[orbit] = counts.get(orbit, 0.0) + count
        return counts


def _ends(sketch: Sketch, edge: Edge) -> frozenset[int]:
    """Return the nodes of an edge's ranks."""
    return frozenset({sketch.node_of_rank[edge.src], sketch.node_of_rank[edge.dst]})


def _ranks_and_nodes(sample: Sketch, ranks: Sequence[int]) -> Iterator[frozenset[int]]:
    yield from (frozenset({rank}) for rank in ranks)
    for node in dict.fromkeys(sample.node_of_rank[rank] for rank in ranks):
        yield frozenset(rank for rank, of in enumerate(sample.node_of_rank) if of == node)


def _volume(collective: Collective, sample: Sketch, nodes: int) -> float:
    """Return the least number of transfers over single edges, in chunks or whole buffers."""
    local = sample.ranks // SAMPLED
    if not collective.is_paired:
        ranks = nodes * local
        return collective.passes * (ranks - 1) * collective.parts(ranks)
    graph = nx.DiGraph((edge.src, edge.dst) for edge in sample.edges)
    inside, across = 0, 0
    for source, hops_to in nx.all_pairs_shortest_path_length(graph):
        for target, hops in hops_to.items():
            if source // local == target // local:
                inside += hops
            else:
                across += hops
    return inside * nodes / SAMPLED + across * nodes * (nodes - 1) / (SAMPLED * (SAMPLED - 1))
