"""A chain of nodes: a sketch less the connections that branch, skip or go back between nodes.

If one rank has all that is spread, trees may go from its node to a second one and from there to all
others, or from each node to the next. Both load NICs alike. A NIC that serves several connections
sends to all of them at once where links are shared fairly, so every chunk on them is late; along
the chain most NICs serve one connection, and a chunk has the whole of it. On two nodes no chunk
goes back to the root's node, where it would arrive late.
"""

from __future__ import annotations

from dataclasses import replace

from sketches.sketch import Sketch
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
    try:
        require_connected(chain, [root])
    except InfeasibleError:
        return None
    return chain
