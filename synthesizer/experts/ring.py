"""Ring algorithms over one or more rings, each on a channel of its own.

All_gather and reduce_scatter take N-1 steps, all_reduce 2(N-1), and every rank sends (N-1)/N of the
buffer per half (Thakur et al. 2005, NCCL's ring). Data is divided evenly over the rings.

A ring visits the nodes one after another and, inside a node, follows edges. Rings are added one by
one on the capacity that earlier rings left on edges and ports, each with the bandwidth of the first
ring's bottleneck. So a machine with one NIC per GPU gets a ring per rail, and on a hybrid cube mesh
the rings share no link. NCCL's search (src/graph/search.cc) has the same aim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from lookup_tables.collective import Collective
from sketches.sketch import Edge, Sketch
from synthesizer.ir.program import Chunk, Program

_MAX_VISITS = 20_000
"""Most steps of the search for a path through a node before it gives up."""

_SLACK = 1e-6


def ring_orders(sketch: Sketch, max_rings: int = 16) -> tuple[Ring, ...]:
    """Return rings over all ranks, each with the same reserved bandwidth; empty if there is none.

    Two bandwidths per ring are tried, that of the widest first ring and that of the narrowest edge;
    the one with more total bandwidth wins.
    """
    widest = _lay_rings(sketch, max_rings, 0.0)
    if not widest:
        return ()
    first = widest[0]
    unit = min(_fair_share(sketch, _edges(sketch, first)))
    narrow = min(edge.bandwidth_gb_per_s for edge in sketch.edges)
    thin = _lay_rings(sketch, max_rings, narrow) if narrow < unit else ()
    return thin if len(thin) * narrow > len(widest) * unit else widest


def _lay_rings(sketch: Sketch, max_rings: int, unit: float) -> tuple[Ring, ...]:
    """Add rings of `unit` GB/s until no further one fits; 0: the bandwidth of the first ring."""
    left = {port.name: port.bandwidth_gb_per_s for port in sketch.ports}
    left_on_edge = {key: edge.bandwidth_gb_per_s for key, edge in sketch.edge.items()}
    rings: list[Ring] = []

    def free(edge: Edge) -> float:
        rate = min([left_on_edge[edge.src, edge.dst], *(left[port] for port in edge.ports)])
        return rate if rate > _SLACK and rate >= unit * (1 - _SLACK) else 0.0

    while len(rings) < max_rings:
        ring = _find_ring(sketch, free)
        if ring is None:
            break
        edges = _edges(sketch, ring)
        unit = unit or min(_fair_share(sketch, edges))
        for edge in edges:
            left_on_edge[edge.src, edge.dst] -= unit
            for port in edge.ports:
                left[port] -= unit
        rings.append(ring)
    return tuple(rings)


def _edges(sketch: Sketch, ring: Ring) -> list[Edge]:
    return [sketch.edge[a, b] for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]


def _fair_share(sketch: Sketch, edges: list[Edge]) -> Iterator[float]:
    """Yield a ring's bandwidth on each edge, and per use on each port."""
    uses = [port for edge in edges for port in edge.ports]
    yield from (edge.bandwidth_gb_per_s for edge in edges)
    yield from (sketch.port[port].bandwidth_gb_per_s / uses.count(port) for port in set(uses))


def _find_ring(sketch: Sketch, free: Callable[[Edge], float]) -> Ring | None:
    """Return one ring over edges with free capacity, or None."""
    nodes = sorted(set(sketch.node_of_rank))
    members = [
        tuple(r for r in range(sketch.ranks) if sketch.node_of_rank[r] == node) for node in nodes
    ]
    neighbours: dict[int, list[int]] = {
        rank: [
            edge.dst
            for edge in sorted(
                (edge for edge in sketch.edges if edge.src == rank and free(edge) > 0),
                key=lambda edge: (-free(edge), (edge.dst - edge.src) % sketch.ranks),
            )
        ]
        for rank in range(sketch.ranks)
    }
    if len(nodes) == 1:
        first = members[0][0]
        ends = [rank for rank in members[0] if first in neighbours[rank]]
        for last in ends:
            path = _path(neighbours, members[0], first, last)
            if path:
                return path
        return None
    return _through_nodes(members, neighbours)


def _through_nodes(members: list[tuple[int, ...]], neighbours: dict[int, list[int]]) -> Ring | None:
    """Return a ring that crosses from each node to the next once, or None."""
    crossings = [
        [(a, b) for a in ranks for b in neighbours[a] if b in members[(i + 1) % len(members)]]
        for i, ranks in enumerate(members)
    ]

    def search(chosen: list[tuple[int, int]]) -> list[Ring] | None:
        i = len(chosen)
        if i == len(members):
            final = _path(neighbours, members[0], chosen[-1][1], chosen[0][0])
            return [final] if final else None
        for crossing in crossings[i]:
            inner: Ring | None = ()
            if i:
                inner = _path(neighbours, members[i], chosen[-1][1], crossing[0])
            if inner is None:
                continue
            rest = search([*chosen, crossing])
            if rest is not None:
                return [inner, *rest] if i else rest
        return None

    paths = search([])
    if paths is None:
        return None
    return (*paths[-1], *(rank for path in paths[:-1] for rank in path))


def _path(
    neighbours: dict[int, list[int]], members: tuple[int, ...], first: int, last: int
) -> Ring | None:
    """Return a path from `first` to `last` that visits every member once, or None."""
    if len(members) == 1:
        return members if first == last else None
    if first == last:
        return None
    visits = 0
    path = [first]
    onward = [iter(neighbours[first])]
    inside = set(members)
    while onward:
        visits += 1
        if visits > _MAX_VISITS:
            return None
        step = next(onward[-1], None)
        if step is None:
            onward.pop()
            path.pop()
        elif (
            step in inside
            and step not in path
            and (step == last) == (len(path) + 1 == len(members))
        ):
            path.append(step)
            if step == last:
                return tuple(path)
            onward.append(iter(neighbours[step]))
    return None


Ring = tuple[int, ...]
"""Ranks in sending order; the last one sends to the first."""


def ring_all_gather(rings: Sequence[Ring]) -> Program:
    """All_gather with one chunk per rank and ring."""
    program = Program(Collective.ALL_GATHER, len(rings[0]), len(rings))
    for rank in range(program.ranks):
        program.copy(
            program.input(rank, 0, program.chunks),
            program.output(rank, rank * program.chunks, program.chunks),
        )
    for step in range(program.ranks - 1):
        for channel, ring in enumerate(rings):
            for position in range(program.ranks):
                owner = ring[(position - step) % program.ranks]
                sender, receiver = ring[position], ring[(position + 1) % program.ranks]
                offset = owner * program.chunks + channel
                own = program.input(sender, channel)
                source = own if sender == owner else program.output(sender, offset)
                program.copy(source, program.output(receiver, offset), channel)
    return program


def ring_reduce_scatter(rings: Sequence[Ring]) -> Program:
    """Reduce_scatter with one chunk per rank and ring."""
    program = Program(Collective.REDUCE_SCATTER, len(rings[0]), len(rings))
    partial: dict[tuple[int, int], Chunk] = {}
    for step in range(program.ranks - 1):
        for channel, ring in enumerate(rings):
            for position in range(program.ranks):
                owner = ring[(position - step - 1) % program.ranks]
                sender, receiver = ring[position], ring[(position + 1) % program.ranks]
                offset = owner * program.chunks + channel
                source = partial.get((owner, channel), program.input(sender, offset))
                last = receiver == owner
                target = program.output(receiver, channel) if last else program.scratch(receiver)
                operand = program.input(receiver, offset)
                partial[owner, channel] = program.reduce(source, target, operand, channel)
    return program


def ring_all_reduce(rings: Sequence[Ring]) -> Program:
    """All_reduce as reduce_scatter and all_gather around the same rings."""
    ranks = len(rings[0])
    program = Program(Collective.ALL_REDUCE, ranks, ranks * len(rings))
    partial: dict[int, Chunk] = {}
    for step in range(2 * (ranks - 1)):
        for channel, ring in enumerate(rings):
            for position in range(ranks):
                offset = ((position - step) % ranks) * len(rings) + channel
                receiver = ring[(position + 1) % ranks]
                source = partial.get(offset, program.input(ring[position], offset))
                if step < ranks - 1:
                    last = step == ranks - 2
                    target = program.output(receiver, offset) if last else program.scratch(receiver)
                    operand = program.input(receiver, offset)
                    partial[offset] = program.reduce(source, target, operand, channel)
                else:
                    target = program.output(receiver, offset)
                    partial[offset] = program.copy(source, target, channel)
    return program


def ring_broadcast(rings: Sequence[Ring], root: int, pipeline: int) -> Program:
    """Broadcast down each ring from the root, `pipeline` chunks one after another per ring."""
    ranks = len(rings[0])
    program = Program(Collective.BROADCAST, ranks, len(rings) * pipeline, root)
    for wave in range(pipeline + ranks - 2):
        for channel, ring in enumerate(rings):
            first = ring.index(root)
            for hop in range(ranks - 1):
                if not 0 <= wave - hop < pipeline:
                    continue
                offset = (wave - hop) * len(rings) + channel
                sender, receiver = ring[(first + hop) % ranks], ring[(first + hop + 1) % ranks]
                source = program.output(sender, offset) if hop else program.input(sender, offset)
                program.copy(source, program.output(receiver, offset), channel)
    program.copy(program.input(root, 0, program.chunks), program.output(root, 0, program.chunks))
    return program


def ring_reduce(rings: Sequence[Ring], root: int, pipeline: int) -> Program:
    """Reduce along each ring towards the root, `pipeline` chunks one after another per ring."""
    ranks = len(rings[0])
    program = Program(Collective.REDUCE, ranks, len(rings) * pipeline, root)
    partial: dict[int, Chunk] = {}
    for wave in range(pipeline + ranks - 2):
        for channel, ring in enumerate(rings):
            first = ring.index(root) + 1
            for hop in range(ranks - 1):
                if not 0 <= wave - hop < pipeline:
                    continue
                offset = (wave - hop) * len(rings) + channel
                sender, receiver = ring[(first + hop) % ranks], ring[(first + hop + 1) % ranks]
                source = partial.get(offset, program.input(sender, offset))
                target = (
                    program.output(receiver, offset)
                    if receiver == root
                    else program.scratch(receiver)
                )
                operand = program.input(receiver, offset)
                partial[offset] = program.reduce(source, target, operand, channel)
    return program


BUILDERS: Mapping[Collective, Callable[[Sequence[Ring]], Program]] = {
    Collective.ALL_GATHER: ring_all_gather,
    Collective.REDUCE_SCATTER: ring_reduce_scatter,
    Collective.ALL_REDUCE: ring_all_reduce,
}
ROOTED_BUILDERS: Mapping[Collective, Callable[[Sequence[Ring], int, int], Program]] = {
    Collective.BROADCAST: ring_broadcast,
    Collective.REDUCE: ring_reduce,
}
"""Algorithms for rings, a root and a number of chunks."""
