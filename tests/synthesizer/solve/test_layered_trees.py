"""Few even trees: within the load and the hops that are allowed, or none."""

from __future__ import annotations

import pytest

from synthesizer.solve.layered_trees import layered_trees
from synthesizer.solve.routes import RouteTree, resources
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh

RING = direct(4, {(0, 1): 50.0, (1, 2): 50.0, (2, 3): 50.0, (0, 3): 50.0})
COSTS = resources(RING, 50_000)
"""A chunk takes 1 us over each link."""


@pytest.mark.parametrize(
    ("count", "layers", "most_us", "found"),
    [
        (1, 2, 1.0, True),
        (2, 3, 1.0, True),  # One tree goes around each way.
        (2, 2, 1.0, False),  # Both would need both links of the root.
        (2, 2, 2.0, True),
        (3, 3, 1.0, False),  # The root has two links.
    ],
)
def test_trees_of_a_ring(count: int, layers: int, most_us: float, found: bool) -> None:
    trees = layered_trees(COSTS, 0, count, layers, most_us, 5.0)
    assert (trees is not None) == found
    if trees:
        assert len(trees) == count
        assert max(COSTS.loads_us(hop for tree in trees for hop in tree.hops)) <= most_us
        assert max(map(_hops, trees)) <= layers


def test_six_trees_fill_all_links_of_a_cube_mesh_in_four_hops_and_not_in_three() -> None:
    costs = resources(hybrid_cube_mesh(), 25_000)
    assert layered_trees(costs, 0, 6, 3, 1.0, 5.0) is None
    trees = layered_trees(costs, 0, 6, 4, 1.0, 5.0)
    assert trees is not None
    assert max(costs.loads_us(hop for tree in trees for hop in tree.hops)) == 1.0
    assert all({rank for hop in tree.hops for rank in hop} == set(range(8)) for tree in trees)


def _hops(tree: RouteTree) -> int:
    """Return the most hops from the source to any rank."""
    depth = {tree.source: 0}
    for a, b in tree.hops:
        depth[b] = depth[a] + 1
    assert set(depth) == set(range(4))
    return max(depth.values())
