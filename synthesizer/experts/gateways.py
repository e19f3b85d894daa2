"""Hierarchical algorithms for nodes of different sizes, or with fewer NICs than ranks.

A route is one rank of every node, all linked with each other. Each chunk has a route, whose ranks
alone exchange it between nodes, its gateways: so it crosses the network once for each node that
needs it, for all nodes at the same time. A node with few ranks or few NICs has few gateways, each
on several routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations, product
from math import lcm

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.experts.hierarchical import after
from synthesizer.ir.program import Chunk, Program

_MOST_TURNS = 24
"""Most routes."""
_MOST_TRIED = 4096
"""Most combinations of ranks that are tried as routes."""
_NODES_WITH_HOMES = 3
"""Least nodes for which chunks have homes: of two, an exchange sends as much."""
_HOMES = (1, 3, 5)
"""Numbers of homes of broadcast and reduce: one for latency, more for bandwidth."""
_MOST_CHUNKS_MOVED = 1 << 15
"""Most chunks that broadcast and reduce over homes move: some seconds of work."""


@dataclass(frozen=True, slots=True)
class Gateways:
    """Ranks by node, and the routes between nodes."""

    nodes: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]
    """One rank of each node, by node."""

    @property
    def are_all_rails(self) -> bool:
        """Whether nodes are equal, and the ranks at each place of theirs are a route."""
        return {len(self.routes)} == set(map(len, self.nodes))

    def node_of(self, rank: int) -> int:
        """Return the node of a rank."""
        return next(node for node, row in enumerate(self.nodes) if rank in row)

    def route(self, turn: int) -> tuple[int, ...]:
        """Return the route whose turn it is."""
        return self.routes[turn % len(self.routes)]

    def route_of(self, rank: int) -> tuple[int, ...]:
        """Return a route for the blocks of a rank, over itself if there is one."""
        node = self.node_of(rank)
        over = [route for route in self.routes if route[node] == rank] or self.routes
        return over[self.nodes[node].index(rank) % len(over)]


def gateways_of(sketch: Sketch) -> Gateways | None:
    """Return the gateways of a sketch; None for one node, or without routes."""
    rows: dict[int, list[int]] = {}
    for rank, node in enumerate(sketch.node_of_rank):
        rows.setdefault(node, []).append(rank)
    nodes = tuple(tuple(rows[node]) for node in sorted(rows))
    sizes = list(map(len, nodes))
    if len(nodes) == 1:
        return None
    turns = range(lcm(*sizes) if lcm(*sizes) <= _MOST_TURNS else max(sizes))
    in_turn = dict.fromkeys(tuple(row[turn % len(row)] for row in nodes) for turn in turns)
    routes = [route for route in in_turn if _is_linked(sketch, route)]
    if not routes:
        for route in islice(product(*nodes), _MOST_TRIED):
            taken = {rank for known in routes for rank in known}
            if taken.isdisjoint(route) and _is_linked(sketch, route):
                routes.append(route)
    return Gateways(nodes, tuple(routes)) if routes else None


def _is_linked(sketch: Sketch, route: tuple[int, ...]) -> bool:
    return all(pair in sketch.edge for pair in permutations(route, 2))


def gateway_programs(
    collective: Collective, sketch: Sketch, root: int
) -> Iterator[tuple[str, Program]]:
    """Yield the algorithms of a collective whose messages the sketch's edges allow.

    Where nodes are equal and have all rails, hierarchical algorithms are as good as gateways, but
    for broadcast and reduce over homes.
    """
    gateways = gateways_of(sketch)
    if gateways is None:
        return
    over = _over_homes if gateways.are_all_rails else programs_over
    for name, program in over(gateways, collective, root):
        pairs = {(s.src.rank, s.dst.rank) for s in program.statements if s.remote}
        if all(pair in sketch.edge for pair in pairs):
            yield name, program


def programs_over(
    gateways: Gateways, collective: Collective, root: int = 0
) -> Iterator[tuple[str, Program]]:
    """Yield the algorithms of a collective with their names."""
    name = f"{collective}_gateways"
    match collective:
        case Collective.ALL_REDUCE:
            yield f"{name}_exchange", all_reduce_by_exchange(gateways)
            if len(gateways.nodes) >= _NODES_WITH_HOMES:
                yield f"{name}_homes", all_reduce_by_homes(gateways)
        case Collective.ALL_GATHER:
            yield name, gateway_all_gather(gateways)
        case Collective.REDUCE_SCATTER:
            yield name, gateway_reduce_scatter(gateways)
        case Collective.BROADCAST:
            yield name, gateway_broadcast(gateways, root)
        case Collective.REDUCE:
            yield name, gateway_reduce(gateways, root)
        case Collective.ALLTOALL:
            yield name, gateway_alltoall(gateways)
    yield from _over_homes(gateways, collective, root)


def _over_homes(
    gateways: Gateways, collective: Collective, root: int
) -> Iterator[tuple[str, Program]]:
    build = {
        Collective.BROADCAST: broadcast_over_homes,
        Collective.REDUCE: reduce_over_homes,
    }.get(collective)
    nodes, ranks = len(gateways.nodes), sum(map(len, gateways.nodes))
    if build is None or nodes < _NODES_WITH_HOMES:
        return
    for homes in _HOMES:
        if homes < nodes and homes * len(gateways.routes) * ranks <= _MOST_CHUNKS_MOVED:
            yield f"{collective}_over_{homes}_homes", build(gateways, root, homes)


def all_reduce_by_exchange(gateways: Gateways) -> Program:
    """All_reduce: every node's sums go to all nodes, and each node adds them up."""
    program = _begun(Collective.ALL_REDUCE, gateways, len(gateways.routes))
    for chunk in range(program.chunks):
        partial = _sums(program, gateways, gateways.route(chunk), chunk)
        for node, row in enumerate(gateways.nodes):
            total, target = partial[node], program.output(partial[node].rank, chunk)
            for peer in after(node, len(partial)):
                total = program.reduce(partial[peer], target, total)
            _spread(program, row, total)
    return program


def all_reduce_by_homes(gateways: Gateways) -> Program:
    """All_reduce: every chunk is added up in one node, its home, and returned to the others."""
    nodes = len(gateways.nodes)
    program = _begun(Collective.ALL_REDUCE, gateways, len(gateways.routes) * nodes)
    for chunk in range(program.chunks):
        turn, home = divmod(chunk, nodes)
        route = gateways.route(turn)
        total, *others = _sums(program, gateways, route, chunk, home)
        for partial in others:
            total = program.reduce(partial, program.output(route[home], chunk), total)
        _to_all_nodes(program, gateways, route, total, chunk)
    return program


def gateway_all_gather(gateways: Gateways) -> Program:
    """All_gather: every block to one rank of each other node, which passes it on."""
    program = _begun(Collective.ALL_GATHER, gateways, 1)
    for rank in range(program.ranks):
        route = gateways.route_of(rank)
        own = program.copy(program.input(rank, 0), program.output(rank, rank))
        gateway = route[gateways.node_of(rank)]
        if gateway != rank:
            own = program.copy(own, program.output(gateway, rank))
        _to_all_nodes(program, gateways, route, own, rank, known=rank)
    return program


def gateway_reduce_scatter(gateways: Gateways) -> Program:
    """Reduce_scatter: every node adds up what a rank needs, and sends it there."""
    program = _begun(Collective.REDUCE_SCATTER, gateways, 1)
    for rank in range(program.ranks):
        home, route = gateways.node_of(rank), gateways.route_of(rank)
        row = gateways.nodes[home]
        gateway = route[home]
        partial = [
            _sum_of_node(program, gateways.nodes[peer_node], route[peer_node], rank)
            for peer_node in after(home, len(route))
        ]
        if gateway != rank:
            total = program.copy(partial[0], program.scratch(gateway))
            for added in partial[1:]:
                total = program.reduce(added, total)
            partial = [total]
        total, target = program.input(rank, rank), program.output(rank, 0)
        for peer in after(row.index(rank), len(row)):
            total = program.reduce(program.input(row[peer], rank), target, total)
        for added in partial:
            total = program.reduce(added, target, total)
    return program


def gateway_broadcast(gateways: Gateways, root: int) -> Program:
    """Broadcast: the root's chunks over the gateways of its node, and from each to all nodes."""
    program = _begun(Collective.BROADCAST, gateways, len(gateways.routes), root)
    home = gateways.node_of(root)
    for chunk in range(program.chunks):
        route = gateways.route(chunk)
        held = program.copy(program.input(root, chunk), program.output(root, chunk))
        if route[home] != root:
            held = program.copy(held, program.output(route[home], chunk))
        _to_all_nodes(program, gateways, route, held, chunk, known=root)
    return program


def gateway_reduce(gateways: Gateways, root: int) -> Program:
    """Reduce: every node's sums to the gateways of the root's node, and from there to the root."""
    program = _begun(Collective.REDUCE, gateways, len(gateways.routes), root)
    home = gateways.node_of(root)
    for chunk in range(program.chunks):
        total, *others = _sums(program, gateways, gateways.route(chunk), chunk, home)
        for partial in others:
            total = program.reduce(partial, total)
        program.copy(total, program.output(root, chunk))
    return program


def broadcast_over_homes(gateways: Gateways, root: int, homes: int) -> Program:
    """Broadcast: each chunk to one of the other nodes, its home, which with the rest doubles it.

    The root's NICs send the buffer once, however many nodes there are, and then all nodes' do.
    """
    program = _begun(Collective.BROADCAST, gateways, len(gateways.routes) * homes, root)
    for chunk, route, root_node, order in _with_homes(gateways, root, homes):
        held = program.copy(program.input(root, chunk), program.output(root, chunk))
        if route[root_node] != root:
            held = program.copy(held, program.output(route[root_node], chunk))
        copies = [program.copy(held, program.output(route[order[0]], chunk))]
        for source, target in _doublings(len(order)):
            copies.append(program.copy(copies[source], program.output(route[order[target]], chunk)))
        for node, copy in zip((root_node, *order), (held, *copies), strict=True):
            _spread(program, gateways.nodes[node], copy, known=root)
    return program


def reduce_over_homes(gateways: Gateways, root: int, homes: int) -> Program:
    """Reduce: the way of `broadcast_over_homes` back, with sums."""
    program = _begun(Collective.REDUCE, gateways, len(gateways.routes) * homes, root)
    for chunk, route, root_node, order in _with_homes(gateways, root, homes):
        own, *partial = (
            _sum_of_node(program, gateways.nodes[node], route[node], chunk)
            for node in (root_node, *order)
        )
        for source, target in reversed(_doublings(len(order))):
            partial[source] = program.reduce(partial[target], partial[source])
        program.copy(program.reduce(partial[0], own), program.output(root, chunk))
    return program


def _with_homes(
    gateways: Gateways, root: int, homes: int
) -> Iterator[tuple[int, tuple[int, ...], int, list[int]]]:
    """Yield each chunk with its route, the root's node, and the others from the chunk's home on."""
    root_node = gateways.node_of(root)
    others = [node for node in range(len(gateways.nodes)) if node != root_node]
    for chunk in range(len(gateways.routes) * homes):
        turn, place = divmod(chunk, homes)
        first = place * len(others) // homes
        yield chunk, gateways.route(turn), root_node, others[first:] + others[:first]


def _doublings(count: int) -> list[tuple[int, int]]:
    """Return who sends to whom of so many, in turn, so that those who have it double each time."""
    return [(target - (1 << target.bit_length() - 1), target) for target in range(1, count)]


def gateway_alltoall(gateways: Gateways) -> Program:
    """Alltoall: what a node has for a remote rank crosses together, from gateway to gateway.

    It runs out of place only, since every output overlaps the input of another rank.
    """
    ranks = sum(map(len, gateways.nodes))
    program = Program(Collective.ALLTOALL, ranks, 1, in_place=False)
    nodes = range(len(gateways.nodes))
    for home, distance in product(nodes, nodes[1:]):
        target = (home + distance) % len(nodes)
        for rank in gateways.nodes[target]:
            route = gateways.route_of(rank)
            _cross_together(program, gateways.nodes[home], route[home], route[target], rank)
    for row in gateways.nodes:
        for place, rank in enumerate(row):
            for peer in (rank, *(row[peer] for peer in after(place, len(row)))):
                program.copy(program.input(rank, peer), program.output(peer, rank))
    return program


def _cross_together(
    program: Program, row: tuple[int, ...], gateway: int, target_gateway: int, rank: int
) -> None:
    """Send the chunks of a node for a rank of another one over a gateway of each."""
    gathered = [program.input(peer, rank) for peer in row]
    held = [
        chunk if chunk.rank == gateway else program.copy(chunk, program.scratch(gateway))
        for chunk in gathered
    ]
    if target_gateway != rank:
        held = [program.copy(chunk, program.scratch(target_gateway)) for chunk in held]
    for peer, chunk in zip(row, held, strict=True):
        program.copy(chunk, program.output(rank, peer))


def _begun(collective: Collective, gateways: Gateways, chunks: int, root: int = 0) -> Program:
    return Program(collective, sum(map(len, gateways.nodes)), chunks, root)


def _sums(
    program: Program, gateways: Gateways, route: tuple[int, ...], chunk: int, first: int = 0
) -> list[Chunk]:
    """Add up a chunk in every node at its gateway; return the sums from node `first` on."""
    order = [first, *after(first, len(route))]
    return [_sum_of_node(program, gateways.nodes[node], route[node], chunk) for node in order]


def _sum_of_node(program: Program, row: tuple[int, ...], gateway: int, chunk: int) -> Chunk:
    """Add up a chunk of all ranks of a node in scratch memory of its gateway."""
    target, total = program.scratch(gateway), program.input(gateway, chunk)
    if len(row) == 1:
        return program.copy(total, target)
    for peer in after(row.index(gateway), len(row)):
        total = program.reduce(program.input(row[peer], chunk), target, total)
    return total


def _to_all_nodes(
    program: Program,
    gateways: Gateways,
    route: tuple[int, ...],
    held: Chunk,
    place: int,
    known: int = -1,
) -> None:
    """Copy a chunk that one gateway holds to the output of all ranks; `known`: has it already."""
    copies = [
        held if rank == held.rank else program.copy(held, program.output(rank, place))
        for rank in route
    ]
    for row, copy in zip(gateways.nodes, copies, strict=True):
        _spread(program, row, copy, known)


def _spread(program: Program, row: tuple[int, ...], held: Chunk, known: int = -1) -> None:
    for peer in after(row.index(held.rank), len(row)):
        if row[peer] != known:
            program.copy(held, program.output(row[peer], held.offset))
