"""How large a machine each way of finding schedules is for.

The search and most expert algorithms write out what every rank does with every block, which grows
with the square of the ranks. On large machines whose nodes are joined by rails, rail exchanges take
their place, which are written down once for all nodes.
"""

from __future__ import annotations

from sketches.sketch import Sketch
from synthesizer.collectives import Collective
from synthesizer.experts import takes_rail_exchange

MOST_RANKS_WRITTEN_OUT = 128
"""Up to here a search or eight rings take about a minute; 256 ranks take many, 1,024 hours."""

MOST_EDGES_OF_ROOTED = 32_000
"""What has one source or one target grows with the ranks alone, but looks at every edge."""

_ROOTED = {Collective.BROADCAST, Collective.REDUCE}


def beyond_search(sketch: Sketch) -> bool:
    """Whether a search on this sketch would take too long."""
    return sketch.ranks > MOST_RANKS_WRITTEN_OUT


def beyond_experts(collective: Collective, sketch: Sketch) -> bool:
    """Whether `expert_algorithms` would take too long on this sketch."""
    if sketch.ranks <= MOST_RANKS_WRITTEN_OUT or takes_rail_exchange(collective, sketch):
        return False
    return collective not in _ROOTED or len(sketch.edges) > MOST_EDGES_OF_ROOTED
