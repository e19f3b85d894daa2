"""Symmetries of a sketch: rank permutations that preserve it.

A symmetry maps nodes onto nodes, every edge onto an edge of the same kind, alpha and bandwidth, and
the ports of every edge, in travel order, onto the ports of its image, by a one-to-one mapping of
ports that preserves bandwidths. Then the image of a schedule is a schedule that takes equally long,
and a synthesizer may solve for one representative (in TACCL, section 4.1, users write such maps by
hand, as `symmetry_offsets` of sketch files).

Permutations come from a fixed list: rotations inside blocks of ranks, as in TACCL, exclusive or for
hypercube meshes such as DGX-1, and where some nodes differ, as one with a NIC down does, rotations
of those that are alike. Each is verified in full, so the returned ones are correct, though there
may be more. Bandwidths and alphas within `EQUAL_WITHIN` count as equal, which absorbs
measuring noise.

A sketch without symmetry may have a part with much of it (`symmetric_part`): a GPU that has lost
its NIC uses those of others, and all of them differ as long as it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose

import networkx as nx

from sketches.sketch import Edge, Sketch

EQUAL_WITHIN = 0.05
"""Relative difference up to which two measured figures count as equal."""

NEARLY_EQUAL = 1.5
"""Ratio of bandwidths below which `evened` widens the lesser one."""

Permutation = tuple[int, ...]


def find_symmetries(
    sketch: Sketch, proposed: Iterable[Permutation] = ()
) -> tuple[Permutation, ...]:
    """Return verified permutations, each of which joins orbits that the previous ones do not.

    The `proposed` ones are tried first. A permutation that joins no orbits is left out: a schedule
    that obeys a larger group than needed gains nothing, and may not exist.
    """
    found: list[Permutation] = []
    orbit = list(range(sketch.ranks))
    for candidates in (lambda *_: proposed, _regular, _of_alike_nodes):
        for candidate in candidates(sketch, orbit):
            joined = least_of_classes(sketch.ranks, [*enumerate(orbit), *enumerate(candidate)])
            if joined != orbit and is_symmetry(sketch, candidate):
                found.append(candidate)
                orbit = joined
    return tuple(found)


def evened(sketch: Sketch) -> Sketch:
    """Return the sketch as if each port and edge were as wide as the widest of its kind.

    Ports are of a kind if their edges are alike; those that differ by half or more stay as they
    are. The symmetries are those of the result: where links are lost, but no connection, a
    schedule for it runs on the sketch, too, and few ranks have to be searched.
    """
    uses: dict[str, Counter[Hashable]] = {port.name: Counter() for port in sketch.ports}
    for edge in sketch.edges:
        for place, name in enumerate(edge.ports):
            uses[name][place, len(edge.ports), edge.kind, edge.alpha_us] += 1
    kind: dict[str, Hashable] = {name: frozenset(found.items()) for name, found in uses.items()}
    widest_port: dict[Hashable, float] = {}
    for port in sketch.ports:
        of_kind = kind[port.name]
        widest_port[of_kind] = max(widest_port.get(of_kind, 0.0), port.bandwidth_gb_per_s)
    kind_of_edge: dict[Edge, Hashable] = {
        edge: (edge.kind, edge.alpha_us, *map(kind.__getitem__, edge.ports))
        for edge in sketch.edges
    }
    widest_edge: dict[Hashable, float] = {}
    for edge, of_kind in kind_of_edge.items():
        widest_edge[of_kind] = max(widest_edge.get(of_kind, 0.0), edge.bandwidth_gb_per_s)
    result = replace(
        sketch,
        ports=tuple(
            replace(port, bandwidth_gb_per_s=_wider(port.bandwidth_gb_per_s, widest))
            for port in sketch.ports
            for widest in [widest_port[kind[port.name]]]
        ),
        edges=tuple(
            replace(edge, bandwidth_gb_per_s=_wider(edge.bandwidth_gb_per_s, widest_edge[of_kind]))
            for edge, of_kind in kind_of_edge.items()
        ),
    )
    return replace(result, symmetries=find_symmetries(result))


def symmetric_part(sketch: Sketch, most_orbits: int) -> Sketch | None:
    """Return the sketch with those edges that alike ranks have in common, and their symmetries.

    Ranks of a node are taken in units of neighbours that share ports. The units that own other
    ports than most stay where they are, the others rotate, in all nodes at once; edges that do not
    fit are left out. None if no part of so few orbits connects all ranks.
    """
    ranks, nodes = sketch.ranks, max(sketch.node_of_rank) + 1
    per_node = ranks // nodes
    if any(node != rank // per_node for rank, node in enumerate(sketch.node_of_rank)):
        return None
    best: Sketch | None = None
    for unit in _divisors(per_node):
        for alike in dict.fromkeys(_alike_units(sketch, per_node, unit)):
            if not 1 < len(alike) < per_node // unit:
                continue
            moves = [_rotated_units(ranks, per_node, unit, alike)]
            if unit > 1:
                moves.append(tuple(_rotate(rank, unit, 1) for rank in range(ranks)))
            part = _preserved(sketch, moves)
            if part is None or (best and len(part.edges) <= len(best.edges)):
                continue
            images = (pair for symmetry in part.symmetries for pair in enumerate(symmetry))
            if len(set(least_of_classes(ranks, images))) <= most_orbits:
                best = part
    return best


def _alike_units(sketch: Sketch, per_node: int, unit: int) -> Iterator[tuple[int, ...]]:
    """Yield the units that own the same ports as most units.

    A port belongs to the unit that uses it most; ties go to the first unit, then to the last.
    """
    classes = _bandwidth_classes(sketch)
    users: dict[tuple[bool, str], Counter[tuple[int, int]]] = {}
    for edge in sketch.edges:
        half = len(edge.ports) // 2
        of_ends = (True, edge.src, edge.ports[:half]), (False, edge.dst, edge.ports[-half:])
        for sends, rank, names in of_ends if half else ():
            for name in names:
                place = rank // per_node, rank % per_node // unit
                users.setdefault((sends, name), Counter())[place] += 1
    for order in (1, -1):
        owned: list[Counter[Hashable]] = [Counter() for _ in range(per_node // unit)]
        for (sends, name), counts in users.items():
            node, number = max(sorted(counts)[::order], key=counts.__getitem__)
            owned[number][node, sends, classes[name]] += 1
        kinds = [frozenset(found.items()) for found in owned]
        usual = Counter(kinds).most_common(1)[0][0]
        yield tuple(number for number, kind in enumerate(kinds) if kind == usual)


def _bandwidth_classes(sketch: Sketch) -> dict[str, float]:
    """Return the bandwidth of each port, or one below it that counts as equal."""
    least = 0.0
    found = {}
    for port in sorted(sketch.ports, key=lambda own: own.bandwidth_gb_per_s):
        if not _equal(least, port.bandwidth_gb_per_s):
            least = port.bandwidth_gb_per_s
        found[port.name] = least
    return found


def _rotated_units(ranks: int, per_node: int, unit: int, alike: Sequence[int]) -> Permutation:
    following = dict(zip(alike, (*alike[1:], alike[0]), strict=True))
    image = list(range(ranks))
    for rank in range(ranks):
        number = rank % per_node // unit
        image[rank] += (following.get(number, number) - number) * unit
    return tuple(image)


def _preserved(sketch: Sketch, moves: Sequence[Permutation]) -> Sketch | None:
    """Return the part of a sketch that permutations preserve, if it connects all ranks.

    A port's image is the one that it has on most edges.
    """
    edges = sketch.edge
    left = 0
    while len(edges) != left:
        left = len(edges)
        for move in moves:
            edges = _with_images(edges, move)
    part = replace(sketch, edges=tuple(edges.values()))
    graph = nx.DiGraph(list(edges))
    connected = len(graph) == sketch.ranks and nx.is_strongly_connected(graph)
    if not connected or not all(is_symmetry(part, move) for move in moves):
        return None
    return replace(part, symmetries=find_symmetries(part, moves))


def _with_images(
    edges: Mapping[tuple[int, int], Edge], move: Permutation
) -> dict[tuple[int, int], Edge]:
    """Return the edges whose image is alike and has the ports that most others lead to.

    If two ports have equally many votes, the one that moves is the image: the one that stays was
    borrowed.
    """
    found = {
        key: (edge, image)
        for key, edge in edges.items()
        for image in [edges.get((move[edge.src], move[edge.dst]))]
        if image and _alike(edge, image)
    }
    votes: dict[str, Counter[str]] = {}
    for edge, image in found.values():
        for port, image_port in zip(edge.ports, image.ports, strict=True):
            votes.setdefault(port, Counter())[image_port] += 1
    image_of = {
        port: max(counts, key=lambda image_port: (counts[image_port], image_port != port))
        for port, counts in votes.items()
    }
    return {
        key: edge
        for key, (edge, image) in found.items()
        if tuple(image_of[port] for port in edge.ports) == image.ports
    }


def _wider(gb_per_s: float, widest_gb_per_s: float) -> float:
    return widest_gb_per_s if widest_gb_per_s < NEARLY_EQUAL * gb_per_s else gb_per_s


def is_symmetry(sketch: Sketch, permutation: Permutation) -> bool:
    """Return whether a permutation maps edges, nodes and ports of the sketch onto themselves."""
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


def _alike(edge: Edge, image: Edge) -> bool:
    return (
        edge.kind is image.kind
        and len(edge.ports) == len(image.ports)
        and _equal(edge.alpha_us, image.alpha_us)
        and _equal(edge.bandwidth_gb_per_s, image.bandwidth_gb_per_s)
    )


def _equal(left: float, right: float) -> bool:
    return isclose(left, right, rel_tol=EQUAL_WITHIN)


def _regular(sketch: Sketch, _orbit: Sequence[int]) -> Iterator[Permutation]:
    """Yield rotations of nodes, of all and in racks, then of ranks in all nodes at once."""
    ranks = sketch.ranks
    nodes = max(sketch.node_of_rank) + 1
    per_node = ranks // nodes
    if any(node != rank // per_node for rank, node in enumerate(sketch.node_of_rank)):
        return
    for unit, count in ((per_node, nodes), (1, per_node)):
        for block in reversed(_divisors(count)):
            for offset in _divisors(block):
                if offset < block:
                    yield tuple(_rotate(rank, unit * block, unit * offset) for rank in range(ranks))
    if per_node & (per_node - 1) == 0:
        for mask in range(1, per_node):
            yield tuple(rank ^ mask for rank in range(ranks))


def _of_alike_nodes(sketch: Sketch, orbit: Sequence[int]) -> Iterator[Permutation]:
    """Yield the rotation of each class of alike nodes, unless each node is already in one orbit."""
    ranks_of: dict[int, list[int]] = {}
    for rank, node in enumerate(sketch.node_of_rank):
        ranks_of.setdefault(node, []).append(rank)
    if len({orbit[ranks[0]] for ranks in ranks_of.values()}) == 1:
        return
    for alike in _alike_nodes(sketch, ranks_of):
        image = list(range(sketch.ranks))
        for node, target in zip(alike, (*alike[1:], alike[0]), strict=True):
            for rank, other in zip(ranks_of[node], ranks_of[target], strict=True):
                image[rank] = other
        yield tuple(image)


_Profile = Mapping[Hashable, Sequence[float]]


def _alike_nodes(sketch: Sketch, ranks_of: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the nodes in classes by the shares of ports that their ranks have, place by place."""
    place = {rank: at for ranks in ranks_of.values() for at, rank in enumerate(ranks)}
    users = Counter(name for edge in sketch.edges for name in edge.ports)
    share = {port.name: port.bandwidth_gb_per_s / max(1, users[port.name]) for port in sketch.ports}
    profiles: dict[int, dict[Hashable, list[float]]] = {node: {} for node in ranks_of}
    for edge in sketch.edges:
        gb_per_s = min([edge.bandwidth_gb_per_s, *map(share.__getitem__, edge.ports)])
        for rank, sends in ((edge.src, True), (edge.dst, False)):
            key = place[rank], sends, edge.kind, len(edge.ports)
            sums = profiles[sketch.node_of_rank[rank]].setdefault(key, [0.0, 0.0])
            sums[0] += 1.0
            sums[1] += gb_per_s
    classes: list[list[int]] = []
    for node, profile in profiles.items():
        like = (each for each in classes if _match(profiles[each[0]], profile))
        known = next(like, None)
        if known is None:
            classes.append([node])
        else:
            known.append(node)
    return classes


def _match(one: _Profile, other: _Profile) -> bool:
    return one.keys() == other.keys() and all(
        all(map(_equal, sums, other[key])) for key, sums in one.items()
    )


def _rotate(rank: int, block: int, offset: int) -> int:
    return rank // block * block + (rank + offset) % block


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def least_of_classes(count: int, equivalent: Iterable[tuple[int, int]]) -> list[int]:
    """Return the least member of every element's class, by union-find."""
    parent = list(range(count))

    def find(element: int) -> int:
        while parent[element] != element:
            parent[element] = parent[parent[element]]
            element = parent[element]
        return element

    for left, right in equivalent:
        a, b = find(left), find(right)
        parent[max(a, b)] = min(a, b)
    return [find(element) for element in range(count)]
