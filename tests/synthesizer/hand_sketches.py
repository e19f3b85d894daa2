"""Hand-written sketches, like those of pruned machines."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from sketches.sketch import Edge, EdgeKind, Port, Sketch
from sketches.symmetry import find_symmetries


def switched(
    nodes: int,
    locals_: int,
    *,
    nvlink_gb_per_s: float = 300.0,
    nic_gb_per_s: float = 25.0,
    nvlink_alpha_us: float = 0.7,
    nic_alpha_us: float = 1.7,
    rotations: bool = True,
) -> Sketch:
    """Return nodes with an NVSwitch, one NIC per GPU, and edges between nodes along rails."""
    ranks = nodes * locals_
    ports, edges = [], []
    for rank in range(ranks):
        ports += [Port(f"g{rank}/out", nvlink_gb_per_s), Port(f"g{rank}/in", nvlink_gb_per_s)]
        if nodes > 1:
            ports += [Port(f"nic{rank}/out", nic_gb_per_s), Port(f"nic{rank}/in", nic_gb_per_s)]
    for a, b in permutations(range(ranks), 2):
        if a // locals_ == b // locals_:
            edges.append(
                Edge(
                    a,
                    b,
                    EdgeKind.NVLINK,
                    nvlink_alpha_us,
                    nvlink_gb_per_s,
                    (f"g{a}/out", f"g{b}/in"),
                )
            )
        elif a % locals_ == b % locals_:
            edges.append(
                Edge(
                    a,
                    b,
                    EdgeKind.NETWORK,
                    nic_alpha_us,
                    nic_gb_per_s,
                    (f"nic{a}/out", f"nic{b}/in"),
                )
            )
    turn = tuple(r // locals_ * locals_ + (r + 1) % locals_ for r in range(ranks))
    swap = tuple((r + locals_) % ranks for r in range(ranks))
    symmetries = tuple(s for s in (turn, swap) if s != tuple(range(ranks)))
    return Sketch(
        name=f"switched_{nodes}x{locals_}",
        why="written by hand",
        node_of_rank=tuple(r // locals_ for r in range(ranks)),
        edges=tuple(edges),
        ports=tuple(ports),
        symmetries=symmetries if rotations else (),
    )


def narrowed(sketch: Sketch, share: float) -> Sketch:
    """Return a switched sketch whose rank 0 has this share of its NVLink bandwidth."""
    ports = tuple(
        replace(port, bandwidth_gb_per_s=port.bandwidth_gb_per_s * share)
        if port.name in {"g0/out", "g0/in"}
        else port
        for port in sketch.ports
    )
    edges = tuple(
        replace(edge, bandwidth_gb_per_s=edge.bandwidth_gb_per_s * share)
        if edge.kind is EdgeKind.NVLINK and 0 in {edge.src, edge.dst}
        else edge
        for edge in sketch.edges
    )
    left = replace(sketch, ports=ports, edges=edges)
    return replace(left, symmetries=find_symmetries(left))


def borrowing(sketch: Sketch) -> Sketch:
    """Return a switched sketch of two nodes less rank 0's NIC: it uses that of rank 1."""
    peer = sketch.ranks // 2
    edges = [edge for edge in sketch.edges if {edge.src, edge.dst} != {0, peer}]
    there, back = sketch.edge[1, peer + 1], sketch.edge[peer + 1, 1]
    edges += [replace(there, src=0), replace(back, dst=0)]
    left = tuple(sorted(edges, key=lambda edge: (edge.src, edge.dst)))
    return replace(sketch, edges=left, symmetries=())


def owned_links(gpus: int) -> Sketch:
    """Return two nodes with an NVSwitch; every odd GPU has a link to the even number below it.

    The links lead to the other node; for 16 GPUs these are TE-CCL's DGX-2 with two chassis.
    """
    ranks = 2 * gpus
    ports = [Port(f"g{rank}/{way}", 125.0) for rank in range(ranks) for way in ("in", "out")]
    edges = []
    for a, b in permutations(range(ranks), 2):
        if a // gpus == b // gpus:
            through = (f"g{a}/out", f"g{b}/in")
            edges.append(Edge(a, b, EdgeKind.NVLINK, 0.7, 125.0, through))
        elif a % 2 and b == (a - 1 + gpus) % ranks:
            edges.append(Edge(a, b, EdgeKind.NETWORK, 2.6, 12.5))
    turn = tuple(r // gpus * gpus + (r + 2) % gpus for r in range(ranks))
    swap = tuple((r + gpus) % ranks for r in range(ranks))
    return Sketch(
        name=f"owned_links_2x{gpus}",
        why="written by hand",
        node_of_rank=tuple(r // gpus for r in range(ranks)),
        edges=tuple(edges),
        ports=tuple(ports),
        symmetries=(turn, swap),
    )


def direct(ranks: int, links: dict[tuple[int, int], float], alpha_us: float = 0.7) -> Sketch:
    """Return one node of GPUs with bidirectional links, given once per pair."""
    both = {**links, **{(b, a): speed for (a, b), speed in links.items()}}
    return Sketch(
        name=f"direct_{ranks}",
        why="written by hand",
        node_of_rank=(0,) * ranks,
        edges=tuple(Edge(a, b, EdgeKind.NVLINK, alpha_us, both[a, b]) for a, b in sorted(both)),
        ports=(),
    )


def hybrid_cube_mesh() -> Sketch:
    """Return a DGX-1 with V100: two NVLinks on the double edges, one on the others."""
    double = [(0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7)]
    single = [(0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6)]
    return direct(8, {**dict.fromkeys(double, 50.0), **dict.fromkeys(single, 25.0)})


def torus(side: int, gb_per_s: float = 50.0) -> Sketch:
    """Return a square torus."""
    links = {}
    for x in range(side):
        for y in range(side):
            links[x * side + y, x * side + (y + 1) % side] = gb_per_s
            links[x * side + y, (x + 1) % side * side + y] = gb_per_s
    return direct(side * side, links)


def less_a_link(sketch: Sketch) -> Sketch:
    """Return the sketch without the first edge and the edge back."""
    first = sketch.edges[0]
    gone = {(first.src, first.dst), (first.dst, first.src)}
    edges = tuple(edge for edge in sketch.edges if (edge.src, edge.dst) not in gone)
    return replace(sketch, edges=edges, symmetries=())
