"""How large a machine each way of finding schedules is for.

The search and most expert algorithms write out what every rank does with every block, which grows
with the square of the ranks. On large machines whose nodes are joined by rails, algorithms over
rails take their place: rail exchanges, which are written down once for all nodes, and trees of
nodes.
"""

from __future__ import annotations

from sketches.sketch import Sketch
from synthesizer.experts import MOST_EDGES_OF_ROOTED, takes_rails_alone
from synthesizer.ir.collectives import Collective

MOST_RANKS_WRITTEN_OUT = 128
"""Up to here a search or eight rings take about a minute; 256 ranks take many, 1,024 hours."""

_ROOTED = {Collective.BROADCAST, Collective.REDUCE}


def beyond_search(sketch: Sketch) -> bool:
    """Whether a search on this sketch would take too long."""
    return sketch.ranks > MOST_RANKS_WRITTEN_OUT


def beyond_experts(collective: Collective, sketch: Sketch) -> bool:
    """Whether `expert_algorithms` would take too long on this sketch."""
    if sketch.ranks <= MOST_RANKS_WRITTEN_OUT or takes_rails_alone(collective, sketch):
        return False
    return collective not in _ROOTED or len(sketch.edges) > MOST_EDGES_OF_ROOTED
