"""Lower bounds on the time of a collective over a sketch, whatever the schedule.

Bandwidth: let every edge carry a flow within its own bandwidth and that of its ports. For each set
S of ranks the flow out of S must carry what the other ranks need from S: |S| chunks for all_gather,
one per outside rank for reduce_scatter, |S| times as many for alltoall, the whole buffer for
all_reduce and, with the root on the right side, for broadcast and reduce. In addition a collective
needs a total number of transfers: 2(N-1) buffers for all_reduce (N-1 to collect and N-1 to spread,
as in gossiping), N-1 for broadcast and reduce, the sum of hop distances for alltoall. The same
holds between nodes, each taken as one rank: all_reduce sends 2(nodes-1) buffers over edges that
leave a node, because the first node with the whole sum of an element received it in at least
nodes-1 messages, and each of the remaining nodes needs one more. The largest rate that a linear
program finds under these constraints bounds the algorithm bandwidth. The first constraints are
those of single ranks, nodes and runs of ranks; minimum cuts then add violated ones until none is
left (up to `MOST_SEPARATED_RANKS` ranks), which makes the bound exact for all_gather and
reduce_scatter (Edmonds' theorem on packing arborescences; compare ForestColl, section 4). Cuts do
not decide how much pairs of ranks can exchange at once. So alltoall has a flow from each source to
all others instead, which makes its bound exact too.

Assumed: only ranks store, copy and reduce. No switch multicasts or reduces (NVLS, SHARP), and no
NIC copies. Any subset of the constraints gives a valid bound, so stopping early is safe.

Latency: the longest of the shortest paths between ranks that exchange data, by the sum of alphas.

Combined: bytes that arrive at time T left their last port an alpha earlier, so with the least alpha
of all edges T >= alpha + size / bandwidth bound. For single ranks and nodes, the hops before and
after a cut count as well (`synthesizer.bounds.cut_times`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import networkx as nx

from lookup_tables.collective import Collective
from sketches.equal_nodes import FoldedSketch
from sketches.sketch import Sketch
from synthesizer.bounds.cut_times import CutTime, cut_times, time_between_nodes
from synthesizer.bounds.edge_orbits import EdgeOrbits, FlowProgram, edge_orbits
from synthesizer.bounds.equal_nodes import demand_of, folded_bound_gb_per_s

MOST_SEPARATED_RANKS = 64
"""Most ranks for which minimum cuts add constraints; without them the bound is weaker but valid."""

_MOST_FLOWS = 8_000
"""Most flows of alltoall, one for each edge and kind of source: 4,000 take 0.1 s, 17,000 up to 2 s.
With more of them its bound comes from cuts as well, and is weaker but valid."""

_MOST_ROUNDS = 40
_VIOLATED = 1e-6


def algbw_bound_gb_per_s(collective: Collective, sketch: Sketch, root: int = 0) -> float:
    """Return an upper bound on the algorithm bandwidth (size / time) of schedules on this sketch.

    Infinite for a custom collective, whose needs are unknown.

    Raises:
        ScheduleError: HiGHS fails on the linear program.
    """
    if collective is Collective.CUSTOM:
        return math.inf
    if collective.has_root and sketch.ranks > MOST_SEPARATED_RANKS:
        return _rooted_bound_of_many(collective, sketch, root)
    orbits = edge_orbits(sketch, symmetric=not collective.has_root)
    program = FlowProgram(orbits)
    program.require(_volume(collective, sketch, root), dict(enumerate(orbits.sizes)))
    if collective.passes > 1:
        program.require(2 * (len(set(sketch.node_of_rank)) - 1), _between_nodes(orbits))
    if _pairs_are_followed(collective, orbits):
        program.require_pairs(orbits)
        return program.solve()[0] * collective.parts(sketch.ranks)
    seen: set[frozenset[int]] = set()
    new = list(dict.fromkeys(_initial_sets(collective, sketch, {*orbits.rank_leaders, root})))
    rate = math.inf
    for _ in range(_MOST_ROUNDS):
        for members in new:
            demand = _demand(collective, members, sketch.ranks, root)
            program.require(demand, orbits.crossing(members))
        seen.update(new)
        rate, flow = program.solve()
        violated = _violated_sets(collective, orbits, flow, rate, root)
        new = [members for members in dict.fromkeys(violated) if members not in seen]
        if not new:
            break
    return rate * collective.parts(sketch.ranks)


def latency_bound_us(collective: Collective, sketch: Sketch, root: int = 0) -> float:
    """Return the largest sum of alphas on a shortest path between two ranks."""
    if collective is Collective.CUSTOM:
        return 0.0
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(sketch.ranks))
    for edge in sketch.edges:
        src, dst = edge.src, edge.dst
        if collective.to_root:
            src, dst = dst, src
        graph.add_edge(src, dst, alpha_us=edge.alpha_us)
    leaders = edge_orbits(sketch).rank_leaders
    sources = (root,) if collective.has_root else leaders
    return float(
        max(
            max(nx.single_source_dijkstra_path_length(graph, source, weight="alpha_us").values())
            for source in sources
        )
    )


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A lower bound on the time for every size: the maximum of straight lines."""

    lines: tuple[CutTime, ...]

    def time_us(self, size_bytes: float) -> float:
        """Return the bound at one size."""
        return max(line.time_us(size_bytes) for line in self.lines)


def time_bound(collective: Collective, sketch: Sketch, root: int = 0) -> TimeBound:
    """Return the bound from latency, bandwidth, and cuts; one call serves all sizes.

    Raises:
        ScheduleError: HiGHS fails on a linear program.
    """
    if collective is Collective.CUSTOM:
        return TimeBound((CutTime(0.0, 0.0),))
    if isinstance(sketch, FoldedSketch) and sketch.sample is not None:
        alike, local = sketch.sample, sketch.ranks // sketch.nodes
        least_us = min((edge.alpha_us for edge in alike.edges), default=0.0)
        gb_per_s = folded_bound_gb_per_s(collective, alike, sketch.nodes, root % local)
        return TimeBound(
            (
                CutTime(latency_bound_us(collective, alike, root % local), 0.0),
                CutTime(least_us, 1e-3 / gb_per_s),
            )
        )
    alpha_us = min((edge.alpha_us for edge in sketch.edges), default=0.0)
    lines = [
        CutTime(latency_bound_us(collective, sketch, root), 0.0),
        CutTime(alpha_us, 1e-3 / algbw_bound_gb_per_s(collective, sketch, root)),
    ]
    if sketch.ranks <= MOST_SEPARATED_RANKS:
        leaders = edge_orbits(sketch, symmetric=not collective.has_root).rank_leaders
        sets = _ranks_and_nodes(sketch, {*leaders, root})
        lines += cut_times(collective, sketch, sets, root)
        if collective.passes > 1:
            lines += filter(None, (time_between_nodes(sketch),))
    return TimeBound(tuple(lines))


def _demand(collective: Collective, members: frozenset[int], ranks: int, root: int) -> int:
    """Return the chunks, or whole buffers, that must leave a set of ranks."""
    return demand_of(collective, len(members), ranks, has_root=root in members)


def _volume(collective: Collective, sketch: Sketch, root: int) -> int:
    """Return the least number of transfers over single edges, in chunks or whole buffers."""
    if collective.is_paired:
        graph = nx.DiGraph((edge.src, edge.dst) for edge in sketch.edges)
        return sum(
            hops
            for source, to_targets in nx.all_pairs_shortest_path_length(graph)
            for target, hops in to_targets.items()
            if not (collective.from_root and source != root)
            and not (collective.to_root and target != root)
        )
    return collective.passes * (sketch.ranks - 1) * collective.parts(sketch.ranks)


def _pairs_are_followed(collective: Collective, orbits: EdgeOrbits) -> bool:
    flows = len(orbits.rank_leaders) * len(orbits.sketch.edges)
    return collective.splits and collective.joins and flows <= _MOST_FLOWS


def _between_nodes(orbits: EdgeOrbits) -> dict[int, float]:
    """Count the edges of each orbit that lead from node to node."""
    node = orbits.sketch.node_of_rank
    pairs = zip(orbits.sketch.edges, orbits.orbit, strict=True)
    return dict(Counter(orbit for edge, orbit in pairs if node[edge.src] != node[edge.dst]))


def _initial_sets(
    collective: Collective, sketch: Sketch, ranks: set[int]
) -> Iterator[frozenset[int]]:
    """Yield the given ranks, their nodes, runs of ranks if all have pairs, and all complements."""
    yield from _ranks_and_nodes(sketch, ranks)
    if collective.splits and collective.joins and sketch.ranks <= MOST_SEPARATED_RANKS:
        yield from _with_complements(
            sketch,
            (
                frozenset(range(first, last))
                for first in range(sketch.ranks)
                for last in range(first + 2, sketch.ranks + 1)
            ),
        )


def _ranks_and_nodes(sketch: Sketch, ranks: set[int]) -> Iterator[frozenset[int]]:
    nodes = sorted({sketch.node_of_rank[rank] for rank in ranks})
    members = [frozenset({rank}) for rank in sorted(ranks)]
    members += [
        frozenset(rank for rank in range(sketch.ranks) if sketch.node_of_rank[rank] == node)
        for node in nodes
    ]
    yield from _with_complements(sketch, members)


def _with_complements(sketch: Sketch, sets: Iterable[frozenset[int]]) -> Iterator[frozenset[int]]:
    all_ranks = frozenset(range(sketch.ranks))
    for members in sets:
        if members != all_ranks:
            yield members
            yield all_ranks - members


def _rooted_bound_of_many(collective: Collective, sketch: Sketch, root: int) -> float:
    """Return the bound from the edges of two nodes, as a program over all edges is too large."""
    remote = next(rank for rank in (sketch.ranks - 1, 0) if rank != root)
    nodes = {sketch.node_of_rank[root], sketch.node_of_rank[remote]}
    near = tuple(
        edge
        for edge in sketch.edges
        if not nodes.isdisjoint((sketch.node_of_rank[edge.src], sketch.node_of_rank[edge.dst]))
    )
    orbits = edge_orbits(replace(sketch, edges=near), symmetric=False)
    program = FlowProgram(orbits)
    for members in _initial_sets(collective, sketch, {root, remote}):
        demand = _demand(collective, members, sketch.ranks, root)
        program.require(demand, orbits.crossing(members))
    return program.solve()[0] * collective.parts(sketch.ranks)


def _violated_sets(
    collective: Collective, orbits: EdgeOrbits, flow: list[float], rate: float, root: int
) -> Iterator[frozenset[int]]:
    """Yield sets of ranks whose demand the flow violates, by minimum cuts."""
    sketch = orbits.sketch
    if (collective.splits and collective.joins) or sketch.ranks > MOST_SEPARATED_RANKS:
        return
    many = collective.divides
    backwards = collective.splits or (collective.to_root and not many)
    graph = _capacities(orbits, flow, backwards=backwards)
    all_ranks = frozenset(range(sketch.ranks))
    needed = rate * (sketch.ranks if many else 1)
    if many:
        for rank in all_ranks:
            graph.add_edge("source", rank, capacity=rate)
    ends = [root] if collective.has_root else orbits.rank_leaders
    targets = ends if many else sorted(all_ranks - {root})
    for target in targets:
        value, (reached, _) = nx.minimum_cut(graph, "source" if many else root, target)
        if value < needed * (1 - _VIOLATED):
            members = frozenset(reached) & all_ranks
            yield all_ranks - members if backwards else members


def _capacities(orbits: EdgeOrbits, flow: list[float], *, backwards: bool) -> nx.DiGraph[int | str]:
    graph: nx.DiGraph[int | str] = nx.DiGraph()
    graph.add_nodes_from(range(orbits.sketch.ranks))
    for edge, orbit in zip(orbits.sketch.edges, orbits.orbit, strict=True):
        src, dst = (edge.dst, edge.src) if backwards else (edge.src, edge.dst)
        graph.add_edge(src, dst, capacity=flow[orbit])
    return graph
