"""A chain of nodes: a sketch less the connections that branch, skip or go back between nodes.

If one rank has all that is spread, trees may go from its node to a second one and from there to all
others, or from each node to the next. Both load NICs alike. A NIC that serves several connections
sends to all of them at once where links are shared fairly, so every chunk on them is late; along
the chain most NICs serve one connection, and a chunk has the whole of it. On two nodes no chunk
goes back to the root's node, where it would arrive late.

GPUs that share a NIC still give it several connections along the chain. `over_each_nic` keeps one
of them, and sends an equal part of all chunks over each NIC of the root's node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sketches.sketch import Edge, Sketch
from synthesizer.solve.routes import require_connected
from tuccl.errors import InfeasibleError


def chain_of_nodes(sketch: Sketch, root: int) -> Sketch | None:
    """Return the sketch with the connections from each node to the next, from the root's on.

    None if the sketch has one node, or a node is not connected with the next.
    """
    nodes = sorted(set(sketch.node_of_rank))
    if len(nodes) == 1:
        return None
    first = nodes.index(sketch.node_of_rank[root])
    place = {node: number for number, node in enumerate(nodes[first:] + nodes[:first])}
    at = [place[node] for node in sketch.node_of_rank]
    kept = tuple(edge for edge in sketch.edges if 0 <= at[edge.dst] - at[edge.src] <= 1)
    chain = replace(sketch, edges=kept, symmetries=())
    return chain if _is_connected(chain, root) else None


def over_each_nic(chain: Sketch, root: int) -> tuple[Sketch, ...]:
    """Return a part of a chain for each NIC of the root's node.

    The parts share all other connections, one on each NIC. The root sends to the GPU with the
    part's NIC and to nobody else, so that chunks reach every NIC as evenly as they leave the root.
    Empty if there is one NIC, or a part is not connected.
    """
    home = chain.node_of_rank[root]
    crossing = _one_on_each_nic(chain, root)
    beyond = {edge for edge in crossing if chain.node_of_rank[edge.src] != home}
    parts = []
    for out in crossing:
        if out in beyond:
            continue
        kept = tuple(
            edge
            for edge in chain.edges
            if edge == out
            or edge in beyond
            or (not _crosses(chain, edge) and (edge.src != root or out.src in {root, edge.dst}))
        )
        parts.append(replace(chain, edges=kept))
    several = len(parts) > 1 and all(_is_connected(part, root) for part in parts)
    return tuple(parts) if several else ()


def _one_on_each_nic(chain: Sketch, root: int) -> list[Edge]:
    """Return connections between nodes that share no port, over GPUs that have few others.

    The root sends to all NICs, so its own NIC is rather that of a neighbour.
    """
    kept: list[Edge] = []
    of_rank: Counter[int] = Counter()
    free = [edge for edge in chain.edges if _crosses(chain, edge)]
    while free:
        best = min(
            free,
            key=lambda edge: (
                edge.src == root,
                of_rank[edge.src] + of_rank[edge.dst],
                edge.src,
                edge.dst,
            ),
        )
        kept.append(best)
        of_rank.update((best.src, best.dst))
        free = [edge for edge in free if edge != best and not set(edge.ports) & set(best.ports)]
    return kept


def _crosses(sketch: Sketch, edge: Edge) -> bool:
    return sketch.node_of_rank[edge.src] != sketch.node_of_rank[edge.dst]


def _is_connected(sketch: Sketch, root: int) -> bool:
    try:
        require_connected(sketch, [root])
    except InfeasibleError:
        return False
    return True
