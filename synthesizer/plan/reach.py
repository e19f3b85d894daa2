"""The largest machines for search and for expert algorithms.

The search and most expert algorithms write out the steps of every rank for every block, which grow
with the square of the ranks. On large machines whose nodes are connected by rails, rail algorithms
take their place: rail exchanges, whose steps are computed once for all nodes, and trees of nodes.
"""

from __future__ import annotations

from sketches.sketch import Sketch
from synthesizer.experts import MOST_EDGES_OF_ROOTED, takes_rails_alone
from synthesizer.ir.collectives import Collective

MOST_RANKS_WRITTEN_OUT = 128
"""Most ranks for a search or eight rings, about a minute at this limit; 1,024 ranks take hours."""

LEAST_BYTES_OF_RAILS_ALONE = 4 << 20
"""Size from which no search found a schedule faster than the rail exchanges of many equal nodes: of
9 and 16 nodes of 8 A100, by 0 to 8 % slower. At 1 MiB it saves up to 2 %."""

_ROOTED = {Collective.BROADCAST, Collective.REDUCE}


def beyond_search(sketch: Sketch) -> bool:
    """Return whether a search on this sketch takes too long."""
    return sketch.ranks > MOST_RANKS_WRITTEN_OUT


def rails_suffice(collective: Collective, sketch: Sketch, size_bytes: int) -> bool:
    """Return whether `expert_algorithms` has what a search for this size would find."""
    if collective in _ROOTED or size_bytes < LEAST_BYTES_OF_RAILS_ALONE:
        return False
    return takes_rails_alone(collective, sketch)


def beyond_experts(collective: Collective, sketch: Sketch) -> bool:
    """Return whether `expert_algorithms` takes too long on this sketch."""
    if sketch.ranks <= MOST_RANKS_WRITTEN_OUT or takes_rails_alone(collective, sketch):
        return False
    return collective not in _ROOTED or len(sketch.edges) > MOST_EDGES_OF_ROOTED
