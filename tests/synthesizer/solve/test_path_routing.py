"""Paths of pairs: what is not the busiest is relieved as well."""

from __future__ import annotations

from synthesizer.solve.path_routing import PairRouting, evened_pairs
from synthesizer.solve.routes import RouteTree, resources, single
from synthesizer.solve.solver import SolveStatus
from synthesizer.solve.tree_routing import Routing
from tests.synthesizer.hand_sketches import direct


def test_chunks_leave_a_busy_way_though_another_link_decides_the_time() -> None:
    """Rank 0 sends two chunks to rank 3, by rank 1 or 2, and two to rank 4 on a narrow link.

    A chunk takes 1 us on a wide link and 1.25 us on the narrow one, which is busy for 2.5 us in any
    case. With both chunks on their way by rank 1 those links are busy for 2 us, else all for 1.
    """
    wide = dict.fromkeys([(0, 1), (1, 3), (0, 2), (2, 3)], 10.0)
    sketch = direct(5, {**wide, (0, 4): 8.0})
    costs = resources(sketch, 10_000)
    start = single(0, 5)
    by_1, by_2, narrow = ((0, 1), (1, 3)), ((0, 2), (2, 3)), ((0, 4),)
    trees = tuple(RouteTree(0, hops) for hops in (by_1, by_1, narrow, narrow))
    routing = Routing(trees, 3.4, 3.4, SolveStatus.OPTIMAL, limit_hit=False)
    found = PairRouting(routing, (3, 3, 4, 4), 2)
    evened = evened_pairs([(start, 3), (start, 4)], costs, found)
    assert [tree.hops for tree in evened.routing.trees] == [by_1, by_2, narrow, narrow]
    assert evened.targets == (3, 3, 4, 4)
    assert evened.routing.least_time_us == 2 * (0.7 + 1.0)
    assert evened_pairs([(start, 3), (start, 4)], costs, evened) == evened
